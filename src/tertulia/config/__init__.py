"""The configuration: its sections (`schema`), its reader (`load`) and its use (`build`)."""
