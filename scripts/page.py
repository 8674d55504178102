#!/usr/bin/env python3
"""The page at / in a real browser, wide and as on a phone, light and dark.

Needs playwright (pip) and a Chromium. Usage: scripts/page.py BASE_ADDRESS [PICTURES]
BROWSER names the browser's program (/usr/bin/chromium)."""

import os
import re
import sys

from playwright.sync_api import expect, sync_playwright

base, pictures = sys.argv[1].removesuffix("/v1"), sys.argv[2] if len(sys.argv) > 2 else None


def check(browser, name, **device):
    context = browser.new_context(**device)
    page = context.new_page()
    wrong, foreign = [], []
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: None if request.url.startswith((base, "data:")) else foreign.append(request.url))
    page.goto(base + "/")
    expect(page.locator("#model")).to_have_text("demo")
    page.get_by_label("Message").fill("What is the capital of France?")
    page.get_by_role("button", name="Send").click()
    page.wait_for_selector(".turn.model small", timeout=60000)
    assert "Paris" in page.locator(".turn.model span").first.inner_text()
    assert "tokens" in page.locator(".turn.model small").first.inner_text()
    # What looks like markup is text.
    page.get_by_label("Message").fill("<img src=x onerror=alert(1)><b>bold</b>")
    page.get_by_label("Message").press("Enter")
    page.wait_for_selector(".turn.model:nth-of-type(4) small", timeout=60000)
    assert page.locator(".turn.user").nth(1).inner_text() == "<img src=x onerror=alert(1)><b>bold</b>"
    assert page.locator("#log img, #log b").count() == 0
    # An answer can be stopped.
    if not page.get_by_label("Temperature").is_visible():
        page.get_by_role("button", name="Settings").click()
    page.get_by_label("Temperature").fill("1.5")
    expect(page.locator("#mapped")).to_have_text(re.compile(r"^[1-9]\d* of"), timeout=15000)
    held = page.locator("#mapped").inner_text()
    if pictures:
        page.wait_for_timeout(600)
        page.screenshot(path=os.path.join(pictures, f"{name}.png"))
    wide = page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert wide, f"{name}: wider than the window"
    page.get_by_role("button", name="New conversation").click()
    assert page.locator(".turn").count() == 0
    assert not wrong and not foreign, (wrong, foreign)
    context.close()
    print(name, "ok:", held)


with sync_playwright() as play:
    program = os.environ.get("BROWSER", "/usr/bin/chromium")
    browser = play.chromium.launch(executable_path=program, args=["--no-sandbox"])
    check(browser, "wide-light", viewport={"width": 1200, "height": 800}, color_scheme="light")
    check(browser, "wide-dark", viewport={"width": 1200, "height": 800}, color_scheme="dark")
    check(browser, "phone", viewport={"width": 390, "height": 780}, is_mobile=True, has_touch=True, color_scheme="dark")
    browser.close()
