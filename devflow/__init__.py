"""The kernel of DevFlow: configuration, errors, events, jobs. It knows no app."""

__version__ = "0.1.0"
