"""Chromium for page tests: one per module, a fresh window per test, and the errors inside it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

IMAGES = Path(__file__).parents[2] / "docs" / "images"
MAKES_IMAGES = bool(os.environ.get("MAKE_IMAGES"))  # else a run changes nothing in the tree
PATIENCE_MS = 60_000
WIDE = {"width": 1280, "height": 860}
PHONE = {"width": 390, "height": 844}


@contextmanager
def chromium(*arguments: str) -> Iterator[Browser]:
    path = shutil.which("chromium") or "/usr/bin/chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path,
            args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", *arguments],
            timeout=120_000,
        )
        try:
            yield browser
        finally:
            browser.close()


class Window:
    """A page with its complaints: errors, refused resources, dialogs."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.context = context
        self.url = url
        self.complaints: list[str] = []
        self.page: Page = context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        self.page.on("console", self._hear)
        self.page.on("dialog", self._dismiss)

    def _hear(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def _dismiss(self, dialog: Any) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def open(self, path: str) -> Page:
        self.page.goto(self.url + path)
        return self.page

    def picture(self, name: str, **options: Any) -> None:
        """Write a screenshot for the documents, if this run is for that. Without a name there is none."""
        if MAKES_IMAGES and name:
            IMAGES.mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=str(IMAGES / f"{name}.png"), **options)


@contextmanager
def window(browser: Browser, url: str, **options: Any) -> Iterator[Window]:
    context = browser.new_context(**{"viewport": WIDE, **options})
    try:
        yield Window(context, url)
    finally:
        context.close()
