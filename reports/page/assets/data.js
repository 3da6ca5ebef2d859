"use strict";
// Data of the page and helpers of all other scripts.

const DATA = JSON.parse(document.getElementById("data").textContent);
const ENTRIES = new Map(); // id -> leaderboard entry
for (const setting of DATA.settings) {
  for (const entry of setting.entries) {
    entry.setting = setting;
    ENTRIES.set(entry.id, entry);
  }
}

const isMissing = (value) => value === null || value === undefined;
const sum = (values) => values.reduce((total, value) => total + value, 0);

/** Create an element with attributes, event listeners ("onclick") and children. Strings become text, not markup. */
function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && !isMissing(value)) node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => !isMissing(child) && child !== ""));
  return node;
}

/** Create a table with a scroll bar if it is too wide. */
function scrollTable(...children) {
  return el("div", { class: "scroll", tabindex: 0 }, el("table", {}, ...children));
}

/** Replace the children of a form; the focused control keeps the focus. */
function replaceChildrenKeepFocus(host, ...children) {
  const focused = host.contains(document.activeElement) ? document.activeElement : null;
  const { name, value, type } = focused ?? {};
  host.replaceChildren(...children);
  if (!name) return;
  host.querySelector(`[name="${name}"]${type === "radio" ? `[value="${value}"]` : ""}`)?.focus();
}

const DASH = "–";
const THIN_SPACE = "\u202f";

function formatDecimal(value, digits = 2) {
  return isMissing(value) ? DASH : value.toFixed(digits).replace("-", "−");
}

function formatSigned(value) {
  return isMissing(value) ? DASH : (value > 0 ? "+" : "") + formatDecimal(value);
}

function formatPercent(fraction, digits = 2) {
  return isMissing(fraction) ? DASH : formatDecimal(100 * fraction, digits);
}

function groupThousands(value) {
  return value.toLocaleString("en-US").replaceAll(",", THIN_SPACE);
}

/** Integers with thin spaces; other numbers below 10 with one decimal. */
function formatCount(value) {
  if (isMissing(value)) return DASH;
  return Math.abs(value) < 10 && !Number.isInteger(value) ? value.toFixed(1) : groupThousands(Math.round(value));
}

function formatNumberOf(count, noun) {
  return `${formatCount(count)} ${noun}${count === 1 ? "" : "s"}`;
}

/** Dataset, model, partition and noise of a setting. */
function describeSetting(setting) {
  return [setting.dataset, setting.model, setting.partition, setting.noise].join(" · ");
}

/** Scale, budget, clients, protocol and hyperparameters of a setting, and keys that distinguish it from similar ones. */
function describeBudget(setting) {
  const budget = `${formatCount(setting.budget)} participations`;
  const clients = `${setting.clients} clients per round`;
  const parts = [`scale ${setting.scale}`, budget, clients, setting.protocol, setting.also];
  return parts.filter(Boolean).join(" · ");
}
