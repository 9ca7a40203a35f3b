"""What is left: look-alike names, samples, the log."""

from __future__ import annotations

from waypost.settings.row import Setting

RUNNING = (
    Setting(
        name="confusable_names",
        kind="text",
        default="mark",
        choices=("mark", "refuse"),
        doc="A name that could be taken for that of another owner's verified agent: marked and put lower, or refused.",
    ),
    Setting(name="samples", kind="switch", default=False, doc="Register the sample agents at start."),
    Setting(
        name="log_level",
        kind="text",
        default="info",
        choices=("debug", "info", "warning", "error"),
        doc="How much is written to stderr.",
    ),
    Setting(
        name="log_format",
        kind="text",
        default="text",
        choices=("text", "json"),
        doc="How it is written there: a line of text for people, or a JSON object a line for programs.",
    ),
)
