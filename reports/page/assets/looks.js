// Colours, dashes and markers that colour-blind readers tell apart, the same for a method everywhere; the theme.

const SVG = "http://www.w3.org/2000/svg";
const PLACES = new Map(DATA.looks.order.map((label, place) => [label, place]));

/** The place of a label in the cycles of colours, dashes and markers, which differ in length. */
function placeOf(label) {
  return PLACES.get(label) ?? 0;
}

/** A style-sheet colour as the canvas needs it, for the theme that is on. */
function themed(name) {
  const probe = el("span", { style: `color: var(--${name})`, hidden: true });
  document.body.append(probe);
  const colour = getComputedStyle(probe).color;
  probe.remove();
  return colour;
}

function colourOf(place) {
  const colour = DATA.looks.colours[place % DATA.looks.colours.length];
  return colour === "#000000" ? themed("black") : colour;
}

/** The same colour, nearly transparent. */
function faint(colour) {
  return colour.startsWith("#") ? `${colour}2b` : colour.replace("rgb(", "rgba(").replace(")", ", 0.17)");
}

function dashOf(place) {
  return DATA.looks.dashes[place % DATA.looks.dashes.length];
}

const POLYGONS = {
  "^": [[0, -1], [0.9, 0.7], [-0.9, 0.7]],
  v: [[0, 1], [0.9, -0.7], [-0.9, -0.7]],
  "<": [[-1, 0], [0.7, 0.9], [0.7, -0.9]],
  ">": [[1, 0], [-0.7, 0.9], [-0.7, -0.9]],
  s: [[-0.75, -0.75], [0.75, -0.75], [0.75, 0.75], [-0.75, 0.75]],
  D: [[0, -1], [1, 0], [0, 1], [-1, 0]],
  P: [[-0.3, -0.9], [0.3, -0.9], [0.3, -0.3], [0.9, -0.3], [0.9, 0.3], [0.3, 0.3], [0.3, 0.9], [-0.3, 0.9], [-0.3, 0.3], [-0.9, 0.3], [-0.9, -0.3], [-0.3, -0.3]],
  X: [[-0.9, -0.5], [-0.5, -0.9], [0, -0.4], [0.5, -0.9], [0.9, -0.5], [0.4, 0], [0.9, 0.5], [0.5, 0.9], [0, 0.4], [-0.5, 0.9], [-0.9, 0.5], [-0.4, 0]],
};

/** A marker as the commands of an SVG path, which Path2D understands too. */
function markerPath(place, x, y, radius) {
  const corners = POLYGONS[DATA.looks.markers[place % DATA.looks.markers.length]];
  if (!corners) {
    const r = 0.85 * radius;
    return `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0Z`;
  }
  return `M${corners.map(([dx, dy]) => `${x + radius * dx} ${y + radius * dy}`).join("L")}Z`;
}

/** A piece of the line, as it is drawn, for a legend. */
function swatch(place) {
  const picture = document.createElementNS(SVG, "svg");
  picture.setAttribute("width", 34);
  picture.setAttribute("height", 12);
  picture.setAttribute("aria-hidden", "true");
  const shapes = [
    { d: "M0 6H34", stroke: colourOf(place), "stroke-width": 2, "stroke-dasharray": dashOf(place).join(" ") || "none" },
    { d: markerPath(place, 17, 6, 4.5), fill: colourOf(place) },
  ];
  for (const shape of shapes) {
    const path = document.createElementNS(SVG, "path");
    for (const [name, value] of Object.entries(shape)) path.setAttribute(name, value);
    picture.append(path);
  }
  return picture;
}

const THEMES = ["auto", "light", "dark"];

function remembered(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null; // a browser may refuse storage to files
  }
}

function remember(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch {
    // the choice then lasts as long as the page
  }
}

/** The theme button: the system's theme, or one of the two. What is on a canvas is drawn again. */
function setUpTheme(redraw) {
  const button = document.getElementById("theme");
  let theme = THEMES.includes(remembered("theme")) ? remembered("theme") : "auto";
  const apply = () => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.textContent = `Theme: ${theme}`;
  };
  button.addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    remember("theme", theme);
    apply();
    redraw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  apply();
}
