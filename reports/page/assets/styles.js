// Line styles (color-blind-safe colors, dashes, markers; a method has the same style everywhere) and color themes.

const SVG = "http://www.w3.org/2000/svg";
const STYLE_INDICES = new Map(DATA.styles.order.map((label, index) => [label, index]));

/** Index of a label in the cycles of colors, dashes and markers. */
function styleIndex(label) {
  return STYLE_INDICES.get(label) ?? 0;
}

/** Value of a CSS color variable in the current theme. */
function themeColor(name) {
  const probe = el("span", { style: `color: var(--${name})`, hidden: true });
  document.body.append(probe);
  const color = getComputedStyle(probe).color;
  probe.remove();
  return color;
}

function lineColor(index) {
  const color = DATA.styles.colors[index % DATA.styles.colors.length];
  return color === "#000000" ? themeColor("black") : color;
}

function bandColor(index) {
  const color = lineColor(index);
  return color.startsWith("#") ? `${color}2b` : color.replace("rgb(", "rgba(").replace(")", ", 0.17)");
}

function lineDash(index) {
  return DATA.styles.dashes[index % DATA.styles.dashes.length];
}

const PLUS = [
  [-0.3, -0.9], [0.3, -0.9], [0.3, -0.3], [0.9, -0.3], [0.9, 0.3], [0.3, 0.3],
  [0.3, 0.9], [-0.3, 0.9], [-0.3, 0.3], [-0.9, 0.3], [-0.9, -0.3], [-0.3, -0.3],
];
const CROSS = [
  [-0.9, -0.5], [-0.5, -0.9], [0, -0.4], [0.5, -0.9], [0.9, -0.5], [0.4, 0],
  [0.9, 0.5], [0.5, 0.9], [0, 0.4], [-0.5, 0.9], [-0.9, 0.5], [-0.4, 0],
];
// Corners of matplotlib's markers; "o" is a circle.
const POLYGONS = {
  "^": [[0, -1], [0.9, 0.7], [-0.9, 0.7]],
  v: [[0, 1], [0.9, -0.7], [-0.9, -0.7]],
  "<": [[-1, 0], [0.7, 0.9], [0.7, -0.9]],
  ">": [[1, 0], [-0.7, 0.9], [-0.7, -0.9]],
  s: [[-0.75, -0.75], [0.75, -0.75], [0.75, 0.75], [-0.75, 0.75]],
  D: [[0, -1], [1, 0], [0, 1], [-1, 0]],
  P: PLUS,
  X: CROSS,
};

/** A marker as SVG path data, which Path2D accepts too. */
function markerPath(index, x, y, radius) {
  const corners = POLYGONS[DATA.styles.markers[index % DATA.styles.markers.length]];
  if (!corners) {
    const r = 0.85 * radius;
    return `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0Z`;
  }
  return `M${corners.map(([dx, dy]) => `${x + radius * dx} ${y + radius * dy}`).join("L")}Z`;
}

function svgElement(tag, attributes, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** Sample of a line style for a legend. */
function legendSample(index) {
  const color = lineColor(index);
  const dash = lineDash(index).join(" ") || "none";
  return svgElement("svg", { width: 34, height: 12, "aria-hidden": "true" },
    svgElement("path", { d: "M0 6H34", stroke: color, "stroke-width": 2, "stroke-dasharray": dash }),
    svgElement("path", { d: markerPath(index, 17, 6, 4.5), fill: color }));
}

const THEMES = ["auto", "light", "dark"];

function loadPreference(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null; // Browsers may deny storage to local files.
  }
}

function savePreference(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch {
    // The preference is lost when the page is closed.
  }
}

/** Set up the theme button. `redraw` is called after a change, for canvases. */
function setUpTheme(redraw) {
  const button = document.getElementById("theme");
  let theme = THEMES.includes(loadPreference("theme")) ? loadPreference("theme") : "auto";
  const apply = () => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.textContent = `Theme: ${theme}`;
  };
  button.addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    savePreference("theme", theme);
    apply();
    redraw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  apply();
}
