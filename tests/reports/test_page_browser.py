"""The page in a real browser: sorting, filtering, switching curves, opening a cell; by mouse and by keyboard, wide and narrow, light and dark."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_runs import METHODS, make_unfinished, set_status, write_sweep

from reports import configure
from reports.page import __main__ as command

webdriver = pytest.importorskip("selenium.webdriver")
from selenium.webdriver.common.by import By  # noqa: E402 - there only where selenium is
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import Select, WebDriverWait  # noqa: E402

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = "headless no-sandbox disable-gpu disable-quic no-first-run disable-background-networking disable-component-update disable-sync disable-dev-shm-usage"
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="no browser here: apt-get install chromium chromium-driver"
)


@pytest.fixture(scope="module")
def address(tmp_path_factory) -> str:
    """Two settings with ten methods and two seeds; one run diverged, one failed, one is under way."""
    folder = tmp_path_factory.mktemp("page")
    made = write_sweep(folder / "runs", methods=METHODS)
    set_status(
        next(place for place in made if place.name.startswith("poc-cifar100-s1")),
        "diverged",
        "round 7: <b>not</b> finite",
    )
    for seed in (1, 2):
        set_status(
            next(place for place in made if place.name.startswith(f"rofl-cifar100-s{seed}")),
            "failed",
            "OSError: disk full",
        )
    make_unfinished(next(place for place in made if place.name.startswith("lsg-cifar100-s2")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(configure, "CONF", Path(__file__).parent / "conf")
        assert command.main([f"runs={folder / 'runs'}", f"out={folder / 'page.html'}"]) == 0
    return (folder / "page.html").as_uri()


@pytest.fixture(scope="module")
def chromium(tmp_path_factory) -> Iterator["webdriver.Chrome"]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS.split(), f"user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield browser
    browser.quit()


@pytest.fixture
def page(chromium, address) -> Iterator["webdriver.Chrome"]:
    """The page, newly opened at desktop width; whatever the test does, the console stays empty."""
    resize(chromium, 1400, 900)
    chromium.get("about:blank")
    chromium.get(address)
    yield chromium
    assert chromium.get_log("browser") == []


def resize(browser, width, height):
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def one(page, selector):
    return page.find_element(By.CSS_SELECTOR, selector)


def many(page, selector):
    return page.find_elements(By.CSS_SELECTOR, selector)


def names(page, setting=0):
    body = many(page, "#board tbody.setting")[setting]
    return [row.text.split()[0] for row in body.find_elements(By.CSS_SELECTOR, "tr.cell th")]


def numbers(page, column, setting=0):
    """A column's numbers from the top; None for a dash."""
    body = many(page, "#board tbody.setting")[setting]
    texts = [
        row.find_elements(By.CSS_SELECTOR, "td")[column].text
        for row in body.find_elements(By.CSS_SELECTOR, "tr.cell")
    ]
    return [None if text == "–" else float(text.split()[0].replace("−", "-")) for text in texts]


def hash_of(page):
    return page.execute_script("return location.hash")


def test_what_is_there(page):
    assert page.title == "Federated learning under label noise"
    summary = one(page, "#summary").text
    assert summary.startswith(
        "40 runs · 20 cells · 2 settings · 2 seeds · 36 done · 1 running · 1 diverged · 2 failed"
    )
    assert len(many(page, "#board tbody.setting")) == 2 and len(names(page)) == len(METHODS)
    assert "50.15 ± 0.07 (2)" in one(page, "#board").text
    assert {"failed 2", "diverged", "running 6 %"} <= {
        node.text for node in many(page, "#board td .status")
    }
    assert "left out" in one(page, "#warnings").get_attribute("textContent")


def test_sorting(page):
    first = numbers(page, 0)
    known = [value for value in first if value is not None]
    assert known == sorted(known, reverse=True) and first[-1] is None, (
        "best first, what has no number last"
    )
    button = one(page, '[data-sort="best"]')
    button.click()
    rising = numbers(page, 0)
    assert [value for value in rising if value is not None] == known[::-1] and rising[-1] is None
    assert (
        one(page, '[data-sort="best"]').find_element(By.XPATH, "..").get_attribute("aria-sort")
        == "ascending"
    )
    one(page, '[data-sort="label"]').send_keys(Keys.ENTER)
    assert names(page) == sorted(METHODS) == names(page, 1)
    assert page.switch_to.active_element.get_attribute("data-sort") == "label", (
        "the focus stays on the heading"
    )
    assert "sort=label" in hash_of(page)


def test_filtering(page):
    noise = Select(one(page, "#filters select[name=noise]"))
    assert len(noise.options) == 3
    noise.select_by_index(1)
    assert (
        len(many(page, "#board tbody.setting")) == 1 and len(many(page, "#axes select option")) == 1
    )
    Select(one(page, "#filters select[name=method]")).select_by_visible_text("fedcorr")
    assert names(page) == ["fedcorr"]
    assert [button.text.split()[0] for button in many(page, "#plot .key li")] == ["fedcorr"]
    one(page, "#filters button").click()
    assert len(many(page, "#board tr.cell")) == 20 and hash_of(page) == ""


def test_a_curve_is_switched_off_and_on(page):
    def shown():
        return page.execute_script(
            "const u = document.getElementById('plot').chart.plot; return u.series.slice(1).filter(s => s.show).length"
        )

    before = shown()
    button = one(page, "#plot .key li button")
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert shown() == before - 3, "its line and the two edges of its band"
    assert "hide=" in hash_of(page)
    button.send_keys(Keys.SPACE)
    assert button.get_attribute("aria-pressed") == "true" and shown() == before
    hide_all = many(page, "#plot .tools button")[1]
    hide_all.click()
    assert shown() == 0


def test_values_under_the_pointer_and_by_arrow_keys(page):
    plot = one(page, "#plot .u-over")
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", plot)
    webdriver.ActionChains(page).move_to_element(plot).perform()
    tip = one(page, "#plot .tip")
    assert (
        tip.is_displayed()
        and "client visits" in tip.text
        and "fedavg" in tip.text
        and "±" in tip.text
    )
    canvas = one(page, "#plot .canvas")
    canvas.send_keys(Keys.HOME)
    assert tip.text.splitlines()[0] == "client visits 5"
    canvas.send_keys(Keys.ARROW_RIGHT)
    assert tip.text.splitlines()[0] == "client visits 10"


@pytest.mark.parametrize(
    ("effort", "last"), [("round", 12), ("participations", 60), ("megabytes", 6.0)]
)
def test_efforts(page, effort, last):
    page.execute_script("arguments[0].click()", one(page, f"#axes input[value={effort}]"))
    x = page.execute_script("return document.getElementById('plot').chart.plot.data[0]")
    assert x[-1] == pytest.approx(last)
    assert hash_of(page) == ("" if effort == "participations" else f"#x={effort}")


def test_seeds_one_by_one(page):
    page.execute_script("arguments[0].click()", one(page, "#axes input[value=each]"))
    labels = page.execute_script(
        "return document.getElementById('plot').chart.plot.series.slice(1).map(s => s.label)"
    )
    assert labels.count("fedavg") == 2 and "lsg" in labels


def test_a_cell_opens_by_click_and_closes(page):
    row = next(row for row in many(page, "#board tr.cell") if row.text.startswith("fedcorr"))
    row.click()
    dialog = one(page, "#detail")
    assert dialog.get_attribute("open") and one(page, "#detail-title").text == "fedcorr"
    WebDriverWait(page, 5).until(lambda page: len(many(page, "#detail .uplot")) == 3)
    text = dialog.text
    for part in (
        "Runs",
        "Detection over the run",
        "Scene",
        "Test confusion",
        "Cost",
        "Run it again",
        "Configuration",
    ):
        assert part in text
    assert "as </script> FedCorr has it" in text, "texts of records are texts"
    assert one(page, "#command").text.startswith(
        "python -m benchmarks.run method=fedcorr dataset=cifar100"
    )
    assert one(page, "#command").text.endswith("seed=1")
    many(page, "#detail input[name=run]")[1].click()
    assert one(page, "#command").text.endswith("seed=2")
    search = one(page, "#detail input[type=search]")
    search.send_keys("noise.rho")
    assert [line.text.split()[:2] for line in many(page, "#detail .config tr")] == [
        ["noise.rho", "0.4"]
    ]
    one(page, "#detail [aria-label=Close]").click()
    assert not dialog.get_attribute("open") and hash_of(page) == ""


def test_a_cell_opens_and_closes_by_keyboard(page):
    row = many(page, "#board tr.cell")[0]
    page.execute_script("arguments[0].focus()", row)
    row.send_keys(Keys.ARROW_DOWN)
    second = page.switch_to.active_element
    assert second.get_attribute("data-cell") == many(page, "#board tr.cell")[1].get_attribute(
        "data-cell"
    )
    second.send_keys(Keys.ENTER)
    assert one(page, "#detail").get_attribute("open") and "cell=" in hash_of(page)
    page.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert not one(page, "#detail").get_attribute("open")
    assert page.switch_to.active_element == second, "back where the reader was"


def test_a_run_that_failed_says_why(page):
    next(row for row in many(page, "#board tr.cell") if row.text.startswith("poc")).click()
    assert "diverged: round 7: <b>not</b> finite" in one(page, "#detail").text


def test_a_view_can_be_linked(page, address):
    one(page, '[data-sort="final"]').click()
    Select(one(page, "#filters select[name=noise]")).select_by_index(2)
    many(page, "#board tr.cell")[3].click()
    link, title = page.current_url, one(page, "#detail-title").text
    page.get("about:blank")
    page.get(link)
    assert one(page, "#detail-title").text == title
    assert len(many(page, "#board tbody.setting")) == 1
    assert one(page, "[aria-sort] button").get_attribute("data-sort") == "final"


@pytest.mark.parametrize("width", [390, 320, 1024])
def test_no_sideways_scrolling(page, width):
    resize(page, width, 844)
    WebDriverWait(page, 5).until(  # charts follow the width when the browser next draws
        lambda page: page.execute_script("return document.documentElement.scrollWidth") <= width
    )
    many(page, "#board tr.cell")[0].click()
    assert (
        page.execute_script(
            "const d = document.getElementById('detail'); return d.scrollWidth - d.clientWidth"
        )
        <= 0
    )


def test_light_and_dark(page):
    def paper():
        return page.execute_script("return getComputedStyle(document.body).backgroundColor")

    for wish, colour in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(21, 24, 27)")):
        features = [{"name": "prefers-color-scheme", "value": wish}]
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        assert paper() == colour, "as the system has it"
    button = one(page, "#theme")
    button.click()
    assert (button.text, paper()) == ("Theme: light", "rgb(255, 255, 255)")
    button.click()
    page.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": "light"}]},
    )
    assert (button.text, paper()) == ("Theme: dark", "rgb(21, 24, 27)")
    button.click()
    assert (button.text, paper()) == ("Theme: auto", "rgb(255, 255, 255)")


def test_a_paper_s_table_shows_ours_and_on_demand_all(page):
    """FedAvg was run at (0.4, 0.5) and (0.8, 0.5) of FedCorr's Table 3, which has four columns and nine rows."""
    table = one(page, "#tables details table")
    assert table.get_attribute("id") == "fedcorr_table3"

    def visible(selector):
        return [
            node.text
            for node in table.find_elements(By.CSS_SELECTOR, selector)
            if node.is_displayed()
        ]

    assert visible("thead th") == ["ρ=0.4", "ρ=0.8", "τ=0.5", "τ=0.5"]
    assert visible("tbody th[scope=rowgroup]") == ["FedAvg"]
    assert visible("tr.reproduced td")[0].startswith("50.15 ± 0.07 (2)")
    one(page, "#tables .only input").click()
    assert len(visible("thead th")) == 8 and len(visible("tbody th[scope=rowgroup]")) == 9


def test_a_live_page_shows_what_came_since(chromium, tmp_path, frozen_conf):
    """The file is written anew below an open page; the view stays."""
    out = tmp_path / "page.html"
    write_sweep(tmp_path / "runs", rhos=[0.4], methods=["fedavg"], seeds=[1])
    command._write([str(tmp_path / "runs")], out, 1, set())
    chromium.get("about:blank")
    chromium.get(f"{out.as_uri()}#sort=final")
    assert (
        one(chromium, "#summary").text.startswith("1 run ·")
        and one(chromium, "#live").text == "Live: every 1 s"
    )
    write_sweep(tmp_path / "runs", rhos=[0.4], methods=["fedavg"], seeds=[2])
    command._write([str(tmp_path / "runs")], out, 0, set())
    changed = "return document.getElementById('summary')?.textContent.startsWith('2 runs')"
    WebDriverWait(chromium, 10).until(lambda page: page.execute_script(changed))
    assert hash_of(chromium) == "#sort=final" and not one(chromium, "#live").is_displayed()
    assert chromium.get_log("browser") == []
