// The address holds the state: every page can be reloaded, shared and gone back to.

export function params() {
  return new URLSearchParams(location.search);
}

export function link(path, given) {
  const found = new URLSearchParams();
  for (const [name, value] of given instanceof URLSearchParams ? given : Object.entries(given ?? {})) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== null && one !== undefined && one !== "") found.append(name, one);
    }
  }
  const text = found.toString();
  return text ? `${path}?${text}` : path;
}

// The same address with some parameters changed; empty values leave.
export function changed(changes) {
  const found = params();
  for (const [name, value] of Object.entries(changes)) {
    found.delete(name);
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== null && one !== undefined && one !== "" && one !== false) found.append(name, one);
    }
  }
  return link(location.pathname, found);
}

export function note(changes) {
  history.replaceState(null, "", changed(changes));
}

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export async function get(name, given, signal) {
  const response = await fetch(link(`/api/${name}`, given), { signal });
  const found = await response.json().catch(() => ({ error: `the viewer answered ${response.status} without words` }));
  if (!response.ok) throw new ApiError(response.status, found.error ?? `status ${response.status}`);
  return found;
}
