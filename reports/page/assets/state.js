// State of the page, stored in the address so that a view can be linked: #data=cifar10&sort=last10&cell=1a2b3c4d

const DEFAULT_STATE = {
  data: "", noise: "", partition: "", model: "", scale: "", method: "", // filters
  sort: DATA.accuracy, direction: "descending", // leaderboard
  setting: "", x: "participations", seeds: "mean", hide: "", // learning curves
  cell: "", run: "", // leaderboard entry and run of the open detail view
};
const STATE_KEYS = Object.keys(DEFAULT_STATE);
const state = { ...DEFAULT_STATE };
const subscribers = [];

function readState() {
  const parameters = new URLSearchParams(location.hash.slice(1));
  for (const key of STATE_KEYS) state[key] = parameters.get(key) ?? DEFAULT_STATE[key];
}

/** Change some keys, update the address and call the subscribers of these keys. */
function setState(values) {
  const changed = Object.keys(values).filter((key) => state[key] !== values[key]);
  if (!changed.length) return;
  Object.assign(state, values);
  const parameters = new URLSearchParams(STATE_KEYS.filter((key) => state[key] !== DEFAULT_STATE[key])
    .map((key) => [key, state[key]]));
  history.replaceState(null, "", parameters.size ? `#${parameters}` : location.pathname + location.search);
  notify(changed);
}

/** Call `render` whenever one of the keys changes. */
function subscribe(keys, render) {
  subscribers.push({ keys, render });
}

function notify(changed) {
  for (const { keys, render } of subscribers) {
    if (changed.some((key) => keys.includes(key))) render();
  }
}

addEventListener("hashchange", () => {
  readState();
  notify(STATE_KEYS);
});
