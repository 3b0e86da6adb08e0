"""`python -m tertulia.cli`."""

from tertulia.cli import main

main()
