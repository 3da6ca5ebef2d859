// What is looked at, kept in the address so that a view can be linked: #data=cifar10&sort=last10&cell=1a2b3c4d

const START = {
  data: "", noise: "", partition: "", model: "", scale: "", method: "",
  sort: "best", direction: "descending", setting: "", x: "participations", seeds: "mean", hide: "", cell: "", run: "",
};
const state = { ...START };
const listeners = [];

function readState() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const key of Object.keys(START)) state[key] = given.get(key) ?? START[key];
}

/** Change some of the state, write the address, and tell the parts which keys changed. */
function change(values) {
  const keys = Object.keys(values).filter((key) => state[key] !== values[key]);
  if (!keys.length) return;
  Object.assign(state, values);
  const written = new URLSearchParams(Object.entries(state).filter(([key, value]) => value !== START[key]));
  history.replaceState(null, "", written.size ? `#${written}` : location.pathname + location.search);
  tell(keys);
}

function tell(keys) {
  for (const listener of listeners) {
    if (keys.some((key) => listener.keys.includes(key))) listener.render(keys);
  }
}

/** Draw again whenever one of the keys changes. */
function follow(keys, render) {
  listeners.push({ keys, render });
}

window.addEventListener("hashchange", () => {
  readState();
  tell(Object.keys(START));
});
