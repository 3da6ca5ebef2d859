"""HTML report in a browser: sorting, filters, curves, details; mouse, keyboard, widths, themes."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_runs import METHODS, make_unfinished, set_status, write_run, write_sweep

from benchmarks.config import experiments
from reports.page import __main__ as command

webdriver = pytest.importorskip("selenium.webdriver")
from selenium.webdriver.common.by import By  # noqa: E402 - after the check for selenium
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import Select, WebDriverWait  # noqa: E402

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = (
    "headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run",
    "disable-background-networking", "disable-component-update", "disable-sync",
    "disable-dev-shm-usage",
)  # fmt: skip
ROWS = "#leaderboard-table tr.entry"
PLOT = "document.getElementById('curve-chart').chart.plot"
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="no browser: apt-get install chromium chromium-driver"
)


@pytest.fixture(scope="module")
def address(tmp_path_factory) -> str:
    """Two settings, ten methods, two seeds; one diverged, two failed and one unfinished run."""
    directory = tmp_path_factory.mktemp("page")
    runs = write_sweep(directory / "runs", methods=METHODS)

    def first(prefix: str) -> Path:
        return next(run_dir for run_dir in runs if run_dir.name.startswith(prefix))

    set_status(first("poc-cifar100-s1"), "diverged", "round 7: <b>not</b> finite")
    set_status(first("rofl-cifar100-s1"), "failed", "OSError: disk full")
    set_status(first("rofl-cifar100-s2"), "failed", "OSError: disk full")
    make_unfinished(first("lsg-cifar100-s2"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiments, "CONF", Path(__file__).parent / "conf")
        out = directory / "page.html"
        assert command.main([f"runs={directory / 'runs'}", f"out={out}"]) == 0
    return out.as_uri()


@pytest.fixture(scope="module")
def chromium(tmp_path_factory) -> Iterator["webdriver.Chrome"]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield browser
    browser.quit()


@pytest.fixture
def page(chromium, address) -> Iterator["webdriver.Chrome"]:
    """The page at desktop width. The console must stay empty."""
    resize(chromium, 1400, 900)
    chromium.get("about:blank")
    chromium.get(address)
    yield chromium
    assert chromium.get_log("browser") == []


def resize(browser, width, height):
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def set_system_theme(browser, theme):
    features = [{"name": "prefers-color-scheme", "value": theme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def one(page, selector):
    return page.find_element(By.CSS_SELECTOR, selector)


def many(page, selector):
    return page.find_elements(By.CSS_SELECTOR, selector)


def rows_of_setting(page, setting=0):
    body = many(page, "#leaderboard-table tbody.setting")[setting]
    return body.find_elements(By.CSS_SELECTOR, "tr.entry")


def row_of(page, method):
    return next(row for row in many(page, ROWS) if row.text.startswith(method))


def methods(page, setting=0):
    return [row.text.split()[0] for row in rows_of_setting(page, setting)]


def numbers(page, column):
    """Numbers of a column in the first setting; None for a dash."""
    texts = [many(row, "td")[column].text for row in rows_of_setting(page)]
    return [None if text == "–" else float(text.split()[0].replace("−", "-")) for text in texts]


def fragment(page):
    return page.execute_script("return location.hash")


def test_page_sections_are_rendered(page):
    assert page.title == "Federated learning under label noise"
    summary = one(page, "#summary").text
    counts = "40 runs · 20 variants · 2 settings · 2 seeds"
    assert summary.startswith(f"{counts} · 36 done · 1 running · 1 diverged · 2 failed")
    assert len(many(page, "#leaderboard-table tbody.setting")) == 2
    assert len(methods(page)) == len(METHODS)
    assert "50.15 ± 0.07 (2)" in one(page, "#leaderboard-table").text
    statuses = {node.text for node in many(page, "#leaderboard-table td .status")}
    assert {"failed 2", "diverged", "running 6 %"} <= statuses
    assert "poc-cifar100-s1" in one(page, "#warnings").get_attribute("textContent")


def test_all_columns_are_visible_on_a_desktop(page):
    table = one(page, "#leaderboard-table")
    assert (
        page.execute_script("return arguments[0].scrollWidth - arguments[0].clientWidth", table)
        <= 0
    )


def test_sorting(page):
    """At first by the accuracy of the page."""
    first = numbers(page, 1)
    known = [value for value in first if value is not None]
    assert known == sorted(known, reverse=True) and first[-1] is None, "missing values are last"
    one(page, '[data-sort="last10"]').click()
    assert [value for value in numbers(page, 1) if value is not None] == known[::-1]
    assert numbers(page, 1)[-1] is None
    heading = one(page, '[data-sort="last10"]').find_element(By.XPATH, "..")
    assert heading.get_attribute("aria-sort") == "ascending"
    one(page, '[data-sort="label"]').send_keys(Keys.ENTER)
    assert methods(page) == sorted(METHODS) == methods(page, 1)
    assert page.switch_to.active_element.get_attribute("data-sort") == "label", "focus is kept"
    assert "sort=label" in fragment(page)


def test_filters(page):
    noise = Select(one(page, "#filters select[name=noise]"))
    assert len(noise.options) == 3
    noise.select_by_index(1)
    assert len(many(page, "#leaderboard-table tbody.setting")) == 1
    assert len(many(page, "#curve-options select option")) == 1
    Select(one(page, "#filters select[name=method]")).select_by_visible_text("fedcorr")
    assert methods(page) == ["fedcorr"]
    legend = [button.text.split()[0] for button in many(page, "#curve-chart .legend li")]
    assert legend == ["fedcorr"]
    one(page, "#filters button").click()
    assert len(many(page, ROWS)) == 20 and fragment(page) == ""


def test_legend_toggles_curves(page):
    def num_shown():
        script = f"return {PLOT}.series.slice(1).filter((series) => series.show).length"
        return page.execute_script(script)

    before = num_shown()
    button = one(page, "#curve-chart .legend li button")
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert num_shown() == before - 3, "the line and both edges of its band"
    assert "hide=" in fragment(page)
    button.send_keys(Keys.SPACE)
    assert button.get_attribute("aria-pressed") == "true" and num_shown() == before
    hide_all = many(page, "#curve-chart .tools button")[1]
    hide_all.click()
    assert num_shown() == 0


def test_tooltip_by_pointer_and_arrow_keys(page):
    plot = one(page, "#curve-chart .u-over")
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", plot)
    webdriver.ActionChains(page).move_to_element(plot).perform()
    tooltip = one(page, "#curve-chart .tooltip")
    assert tooltip.is_displayed()
    assert all(text in tooltip.text for text in ("client participations", "fedavg", "±"))
    canvas = one(page, "#curve-chart .canvas")
    canvas.send_keys(Keys.HOME)
    assert tooltip.text.splitlines()[0] == "client participations 5"
    canvas.send_keys(Keys.ARROW_RIGHT)
    assert tooltip.text.splitlines()[0] == "client participations 10"


@pytest.mark.parametrize(
    ("axis", "last"), [("round", 12), ("participations", 60), ("megabytes", 6.0)]
)
def test_horizontal_axis(page, axis, last):
    button = one(page, f"#curve-options input[value={axis}]")
    page.execute_script("arguments[0].click()", button)
    assert page.execute_script(f"return {PLOT}.data[0].at(-1)") == pytest.approx(last)
    assert fragment(page) == ("" if axis == "participations" else f"#x={axis}")


def test_individual_seeds(page):
    page.execute_script("arguments[0].click()", one(page, "#curve-options input[value=each]"))
    labels = page.execute_script(f"return {PLOT}.series.slice(1).map((series) => series.label)")
    assert labels.count("fedavg") == 2 and "lsg" in labels


def test_detail_view_by_mouse(page):
    row_of(page, "fedcorr").click()
    dialog = one(page, "#detail")
    assert dialog.get_attribute("open") and one(page, "#detail-title").text == "fedcorr"
    WebDriverWait(page, 5).until(lambda page: len(many(page, "#detail .uplot")) == 3)
    titles = [heading.text for heading in many(page, "#detail h3")]
    assert titles == [
        "Runs", "Test accuracy", "Noise detection", "Label correction and memorization",
        "Scenario", "Confusion matrix of the last evaluation", "Cost", "Command", "Configuration",
    ]  # fmt: skip
    assert "as </script> FedCorr has it" in dialog.text, "text of records is escaped"
    prefix = "python -m benchmarks.run method=fedcorr dataset=cifar100"
    assert one(page, "#command").text.startswith(prefix)
    assert one(page, "#command").text.endswith("seed=1")
    many(page, "#detail input[name=run]")[1].click()
    assert one(page, "#command").text.endswith("seed=2")
    one(page, "#detail input[type=search]").send_keys("noise.rho")
    found = [line.text.split()[:2] for line in many(page, "#detail .config tr")]
    assert found == [["noise.rho", "0.4"]]
    one(page, "#detail [aria-label=Close]").click()
    assert not dialog.get_attribute("open") and fragment(page) == ""


def test_detail_view_by_keyboard(page):
    first, second = many(page, ROWS)[:2]
    page.execute_script("arguments[0].focus()", first)
    first.send_keys(Keys.ARROW_DOWN)
    assert page.switch_to.active_element == second
    second.send_keys(Keys.ENTER)
    assert one(page, "#detail").get_attribute("open") and "cell=" in fragment(page)
    page.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert not one(page, "#detail").get_attribute("open")
    assert page.switch_to.active_element == second, "the focus returns"


def test_detail_view_shows_the_reason_of_a_failure(page):
    row_of(page, "poc").click()
    assert "diverged: round 7: <b>not</b> finite" in one(page, "#detail").text


def test_address_restores_the_view(page, address):
    one(page, '[data-sort="final"]').click()
    Select(one(page, "#filters select[name=noise]")).select_by_index(2)
    many(page, ROWS)[3].click()
    link, title = page.current_url, one(page, "#detail-title").text
    page.get("about:blank")
    page.get(link)
    assert one(page, "#detail-title").text == title
    assert len(many(page, "#leaderboard-table tbody.setting")) == 1
    assert one(page, "[aria-sort] button").get_attribute("data-sort") == "final"


def test_mean_curve_interpolates_between_evaluations(page):
    """Seeds may be evaluated at different numbers of participations."""
    script = """return meanCurve([
        {x: [0, 10], y: [0, 10], participations: [0, 10]},
        {x: [0, 5, 12], y: [2, 7, 14], participations: [0, 5, 12]}])"""
    found = page.execute_script(script)
    assert found["x"] == [0, 5, 10] and found["y"] == [1, 6, 11]


@pytest.mark.parametrize("width", [390, 320, 1024])
def test_no_horizontal_scrolling(page, width):
    resize(page, width, 844)
    script = "return document.documentElement.scrollWidth"
    WebDriverWait(page, 5).until(lambda page: page.execute_script(script) <= width)
    many(page, ROWS)[0].click()
    dialog = one(page, "#detail")
    script = "return arguments[0].scrollWidth - arguments[0].clientWidth"
    assert page.execute_script(script, dialog) <= 0


def test_light_and_dark_theme(page):
    colors = {"light": "rgb(255, 255, 255)", "dark": "rgb(21, 24, 27)"}

    def background():
        return page.execute_script("return getComputedStyle(document.body).backgroundColor")

    for theme, color in colors.items():
        set_system_theme(page, theme)
        assert background() == color
    button = one(page, "#theme")
    button.click()
    assert (button.text, background()) == ("Theme: light", colors["light"])
    button.click()
    set_system_theme(page, "light")
    assert (button.text, background()) == ("Theme: dark", colors["dark"])
    button.click()
    assert (button.text, background()) == ("Theme: auto", colors["light"])


def test_published_table_shows_reproduced_or_all_columns(page):
    """FedAvg ran in two of the four columns of FedCorr's Table 3, which has nine rows."""
    table = one(page, "#published-tables details table")
    assert table.get_attribute("id") == "fedcorr_table3"

    def visible(selector):
        return [node.text for node in many(table, selector) if node.is_displayed()]

    assert visible("thead th") == ["ρ=0.4", "ρ=0.8", "τ=0.5", "τ=0.5"]
    assert visible("tbody th[scope=rowgroup]") == ["FedAvg"]
    assert visible("tr.reproduced td")[0].startswith("50.15 ± 0.07 (2)")
    one(page, "#published-tables .only input").click()
    assert len(visible("thead th")) == 8 and len(visible("tbody th[scope=rowgroup]")) == 9


def test_open_page_reloads_after_an_update(chromium, tmp_path, frozen_conf):
    runs, out = tmp_path / "runs", tmp_path / "page.html"
    write_sweep(runs, rhos=[0.4], methods=["fedavg"], seeds=[1])
    command.update([str(runs)], out, "last10", 1, set())
    chromium.get("about:blank")
    chromium.get(f"{out.as_uri()}#sort=final")
    assert one(chromium, "#summary").text.startswith("1 run ·")
    assert one(chromium, "#live").text == "Live: every 1 s"
    write_sweep(runs, rhos=[0.4], methods=["fedavg"], seeds=[2])
    command.update([str(runs)], out, "last10", 0, set())
    script = "return document.getElementById('summary')?.textContent.startsWith('2 runs')"
    WebDriverWait(chromium, 10).until(lambda page: page.execute_script(script))
    assert fragment(chromium) == "#sort=final" and not one(chromium, "#live").is_displayed()
    assert chromium.get_log("browser") == []


def test_accuracy_axis_ends_at_100_percent(chromium, tmp_path, frozen_conf):
    write_run(tmp_path / "runs", 0.4, "fedavg", 1, best=0.995)
    command.update([str(tmp_path / "runs")], tmp_path / "page.html", "last10", 0, set())
    chromium.get((tmp_path / "page.html").as_uri())
    limits = chromium.execute_script(f"return [{PLOT}.scales.y.min, {PLOT}.scales.y.max]")
    assert 0 <= limits[0] < 60 and limits[1] == 100
