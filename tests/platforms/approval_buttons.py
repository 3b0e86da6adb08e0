"""The buttons of an approval, played with a real gateway on every platform that has buttons."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import ClassVar, Literal

import pytest

from tertulia.core.approval import ApprovalSettings
from tertulia.core.buttons import Button
from tertulia.gateway.settings import GatewaySettings
from tertulia.platforms.base import Adapter
from tertulia.platforms.settings import PlatformSettings
from tests.gateway.test_approvals import COMMAND, Shell, agent_calling, calling
from tests.http.served_gateway import ServedGateway, eventually, served_gateway

Person = Literal["ana", "ben"]


class ButtonScene(ABC):
    """A platform with a chat in which Ana writes, and Ben too if it has groups."""

    platform: ClassVar[str]
    # Whether a message can be changed after it was sent.
    edits: ClassVar[bool] = True
    # The labels that the platform can show.
    labels: ClassVar[tuple[str, ...]] = ("Approve once", "This session", "Always", "Deny")

    @abstractmethod
    def adapter(self) -> Adapter:
        """Return a new adapter, as every process has its own."""

    def connect(self, gateway: ServedGateway) -> None:
        """Tell the platform the address of the gateway; wait until it is connected."""
        return

    @abstractmethod
    def write(self, text: str) -> None:
        """Write to the agent as Ana."""

    @abstractmethod
    def press(self, value: str, who: Person = "ana") -> None:
        """Press a button of the newest question, whatever its value was, and forget about it."""

    @abstractmethod
    def repeat_press(self) -> None:
        """Let the newest press come in again."""

    @abstractmethod
    def texts(self) -> list[str]:
        """Return the texts of all messages of the agent, as they are now."""

    @abstractmethod
    def buttons(self) -> list[Button]:
        """Return the buttons that the newest question has now."""

    def count_unacknowledged(self) -> int:
        """Return how many presses still show a person that something is in progress."""
        return 0


class ApprovalButtons(ABC):
    """What a press does, on every platform."""

    @abstractmethod
    def scene(self) -> AbstractContextManager[ButtonScene]:
        """Return a platform."""

    @contextmanager
    def running(
        self, folder: Path, scene: ButtonScene, shell: Shell, *, minutes: float = 60
    ) -> Iterator[ServedGateway]:
        """Run a gateway whose agent wants to run one command."""
        everyone = PlatformSettings(admission="everyone", groups="always")
        rules = GatewaySettings(
            gather_seconds=0,
            platforms={scene.platform: everyone},
            approvals=ApprovalSettings(minutes=minutes),
            drain_seconds=2,
        )
        agent = agent_calling(calling("rm -rf build"))
        with served_gateway(
            folder / "talk.db", agent=agent, adapters=[scene.adapter()], tools=[shell.tool],
            rules=rules,
        ) as gateway:  # fmt: skip
            scene.connect(gateway)
            yield gateway

    def ask(self, scene: ButtonScene) -> dict[str, str]:
        """Write, wait for the question, and return the value of each of its buttons."""
        before = len(scene.texts())
        scene.write("clean up")
        eventually(lambda: len(scene.texts()) > before and scene.buttons())
        buttons = {button.label: button.value for button in scene.buttons()}
        assert tuple(buttons) == scene.labels
        return buttons

    def check_closed(self, scene: ButtonScene, outcome: str) -> None:
        """Wait until the question shows what became of it, without buttons."""
        if scene.edits:
            eventually(lambda: not scene.buttons())
            (question,) = [text for text in scene.texts() if text.startswith("May I run")]
            assert question.endswith(outcome)
            assert "/approve" not in question
            assert "rm -rf build" in question

    @pytest.mark.check
    def test_press_of_the_right_person_runs_the_call_once(self, tmp_path: Path) -> None:
        shell = Shell()
        with self.scene() as scene, self.running(tmp_path, scene, shell) as gateway:
            values = self.ask(scene)
            # Somebody else, a code that nobody made, and values that are no answers at all.
            scene.press(values["Approve once"], "ben")
            eventually(lambda: any("not yours to answer" in text for text in scene.texts()))
            scene.press("once:AAAAAAAA")
            eventually(lambda: any("no call with this code" in text for text in scene.texts()))
            count = len(scene.texts())
            for forged in ("/forget yes", values["Deny"].lower(), f"{values['Deny']} x", "🙈"):
                scene.press(forged)
            assert shell.calls == []
            for _ in range(2):
                scene.press(values["Approve once"])
            scene.repeat_press()
            eventually(lambda: "Done: ran rm -rf build" in scene.texts())
            eventually(lambda: sum(t.startswith("Approved:") for t in scene.texts()) == 2)
            self.check_closed(scene, "Answer: approved once.")
            assert len(scene.texts()) == count + 3  # two replies and the answer
            assert shell.calls == [COMMAND]
            eventually(lambda: scene.count_unacknowledged() == 0)
            with gateway.store() as store:
                assert store.outbox.count("dead") == store.outbox.count("unknown") == 0

    @pytest.mark.check
    def test_press_while_no_gateway_runs_is_answered_by_the_next(self, tmp_path: Path) -> None:
        shell = Shell()
        with self.scene() as scene:
            with self.running(tmp_path, scene, shell):
                values = self.ask(scene)
            scene.press(values["Deny"])
            with self.running(tmp_path, scene, shell):
                eventually(lambda: "Done: declined: the person said no" in scene.texts())
                self.check_closed(scene, "Answer: denied.")
        assert shell.calls == []

    @pytest.mark.check
    def test_press_after_the_end_says_so(self, tmp_path: Path) -> None:
        shell = Shell()
        with self.scene() as scene, self.running(tmp_path, scene, shell, minutes=0.001) as gateway:
            values = self.ask(scene)
            with gateway.store() as store:
                # By the clock of the database; the loop of the gateway may be faster.
                eventually(lambda: store.approvals.expire() or not store.approvals.find())
            eventually(lambda: any(t.startswith("Nobody answered in time") for t in scene.texts()))
            self.check_closed(scene, "Nobody answered in time, so it did not run.")
            scene.press(values["Approve once"])
            eventually(lambda: any("has expired; nothing was changed" in t for t in scene.texts()))
        assert shell.calls == []
