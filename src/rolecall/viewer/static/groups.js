// Metric keys into charts: `area/subject/name` with one subject a role or policy; the same name side by side.

const RATES = /accuracy|share|rate|recall|alarm|truncated|unparsed|says_|correct|repaired|copied|kept|total$|team|clip_fraction/;

// [{id, title, area, keys: [{key, subject}], unit01}]; a key with _low and _high beside it carries them as its band.
export function chartsOf(keys, roles, policies, { apart = false } = {}) {
  const known = new Set(keys);
  const subjects = new Set([...roles, ...policies]);
  const found = new Map();
  for (const key of keys) {
    if (isBand(key, known)) continue;
    const parts = key.split("/");
    const area = parts[0];
    const named = parts.length > 2 && subjects.has(parts[1]);
    const name = named ? parts.slice(2).join("/") : parts.slice(1).join("/");
    const id = named && !apart ? `${area}/*/${name}` : key;
    if (!found.has(id)) found.set(id, { id, title: named && !apart ? `${area} · ${name}` : key, area, keys: [], unit01: RATES.test(name) });
    found.get(id).keys.push({ key, subject: named ? parts[1] : "", band: known.has(`${key}_low`) && known.has(`${key}_high`) });
  }
  const order = (subject) => (roles.includes(subject) ? roles.indexOf(subject) : roles.length + policies.indexOf(subject));
  for (const chart of found.values()) chart.keys.sort((a, b) => order(a.subject) - order(b.subject));
  return [...found.values()];
}

function isBand(key, known) {
  const base = key.replace(/_(low|high)$/, "");
  return base !== key && known.has(base) && known.has(`${base}_low`) && known.has(`${base}_high`);
}

export const fetchKeys = (chart) => chart.keys.flatMap(({ key, band }) => (band ? [key, `${key}_low`, `${key}_high`] : [key]));

// The charts that a first look needs, in this order, where a run has them.
const FIRST = [
  /^validation\/team$/, /^reward\/team$/, /^reward\/\*\/total$/, /^behaviour\/\*\/accuracy$/, /^dynamics\/\*\/mass_share$/, /^dynamics\/\*\/grad_norm$/,
  /^dynamics\/\*\/cosine_total$/, /^behaviour\/\*\/length$/, /^learner\/\*\/entropy$/,
];

export function overview(charts, roles) {
  const byKey = (chart) => (chart.keys.length && chart.keys[0].subject ? chart.id.replace(`/${chart.keys[0].subject}/`, "/*/") : chart.id);
  const byRole = (a, b) => roles.indexOf(a.keys[0].subject) - roles.indexOf(b.keys[0].subject);
  return FIRST.flatMap((pattern) => charts.filter((chart) => pattern.test(byKey(chart))).sort(byRole));
}

export function areasOf(charts) {
  const found = new Map();
  for (const one of charts) {
    if (!found.has(one.area)) found.set(one.area, []);
    found.get(one.area).push(one);
  }
  return found;
}

// Words that must all be in the key; a word with / in front and behind is a regular expression.
export function matcher(text) {
  const words = text.trim().split(/\s+/).filter(Boolean);
  const tests = words.map((word) => {
    const pattern = /^\/(.+)\/$/.exec(word);
    if (pattern) {
      try {
        const compiled = new RegExp(pattern[1], "i");
        return (key) => compiled.test(key);
      } catch { /* half typed: read it as a word */ }
    }
    return (key) => key.toLowerCase().includes(word.toLowerCase());
  });
  return (key) => tests.every((test) => test(key));
}
