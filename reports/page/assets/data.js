"use strict";
// The data of the page, and small helpers that all parts use.

const DATA = JSON.parse(document.getElementById("data").textContent);
const CELLS = new Map(); // id -> cell, which knows its setting
for (const setting of DATA.settings) {
  for (const cell of setting.cells) {
    cell.setting = setting;
    CELLS.set(cell.id, cell);
  }
}

/** An element with attributes and children; text is never taken for markup. */
function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return node;
}

/** New content for a host; what had the focus in it keeps it. */
function refill(host, ...children) {
  const focused = host.contains(document.activeElement) ? document.activeElement : null;
  const { name, value, type } = focused ?? {};
  host.replaceChildren(...children);
  if (name) host.querySelector(type === "radio" ? `[name="${name}"][value="${value}"]` : `[name="${name}"]`)?.focus();
}

/** A packed column as numbers: whole numbers of the last decimal, written out, by runs, or by runs of steps. */
function unpack(column) {
  if (!column) return null;
  let values = column.v;
  if (column.r) values = expand(column.r);
  if (column.d) {
    values = [column.d[0]];
    for (const step of expand(column.d.slice(1))) values.push(values[values.length - 1] + step);
  }
  const factor = 10 ** column.k;
  return values.map((value) => (value === null ? null : value / factor));
}

function expand(pairs) {
  const values = [];
  for (let place = 0; place < pairs.length; place += 2) {
    for (let time = 0; time < pairs[place + 1]; time += 1) values.push(pairs[place]);
  }
  return values;
}

const DASH = "–";

function decimals(value, digits = 2) {
  return value === null || value === undefined ? DASH : value.toFixed(digits).replace("-", "−");
}

function signed(value) {
  return value === null || value === undefined ? DASH : (value > 0 ? "+" : "") + decimals(value);
}

/** Whole numbers with thin spaces, small ones with a decimal. */
function amount(value) {
  if (value === null || value === undefined) return DASH;
  const text = Math.abs(value) < 10 && !Number.isInteger(value) ? value.toFixed(1) : Math.round(value).toLocaleString("en-US");
  return text.replaceAll(",", "\u202f");
}

function percent(share, digits = 2) {
  return share === null || share === undefined ? DASH : decimals(100 * share, digits);
}

function describe(setting) {
  return [setting.dataset, setting.model, setting.partition, setting.noise].join(" · ");
}

function describeRest(setting) {
  const rest = [`scale ${setting.scale}`, `${amount(setting.budget)} visits`, `${setting.clients} clients a round`, setting.also];
  return rest.filter(Boolean).join(" · ");
}
