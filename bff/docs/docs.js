// @ts-check
// Shows openapi.json in Swagger UI with a menu, a search and the shared token.
const { SwaggerUIBundle } = /** @type {any} */ (window);
const spec = await (await fetch('openapi.json')).json();
spec.servers = [{ url: new URL('.', location.href).href.replace(/\/$/, '') }]; // also below a proxy path

/** Renders descriptions as plain text: the policy refuses markup from strings. @param {any} system */
const plain = ({ React }) => ({ components: { Markdown: (/** @type {any} */ { source }) => React.createElement('div', { className: 'markdown' }, source) } });
const token = /** @type {HTMLInputElement} */ (find('#token'));
token.value = new URLSearchParams(location.hash.slice(1)).get('token') ?? stored() ?? '';
const ui = SwaggerUIBundle({
  spec,
  domNode: find('#viewer'),
  plugins: [plain],
  requestInterceptor(/** @type {any} */ request) {
    if (token.value) request.headers.Authorization = `Bearer ${token.value.trim()}`;
    return request;
  },
  deepLinking: true,
  docExpansion: 'list',
  defaultModelsExpandDepth: 0,
  syntaxHighlight: false,
  tryItOutEnabled: true,
  validatorUrl: null,
});

/** @type {{link: HTMLElement, text: string}[]} */
const entries = [];
for (const { name } of spec.tags) {
  const group = document.createElement('section');
  group.append(Object.assign(document.createElement('h2'), { textContent: name }));
  for (const [path, methods] of Object.entries(spec.paths)) {
    for (const [method, op] of Object.entries(/** @type {Record<string, any>} */ (methods))) {
      if (!op.tags?.includes(name)) continue;
      const link = Object.assign(document.createElement('a'), { href: `#/${name}/${op.operationId}`, textContent: op.summary, title: `${method.toUpperCase()} ${path}` });
      link.addEventListener('click', () => show(name, op.operationId));
      entries.push({ link, text: `${method} ${path} ${op.summary} ${op.description ?? ''}`.toLowerCase() });
      group.append(link);
    }
  }
  find('#menu').append(group);
}

const search = /** @type {HTMLInputElement} */ (find('#search'));
search.addEventListener('input', () => {
  const words = search.value.toLowerCase().split(/\s+/);
  for (const { link, text } of entries) link.hidden = !words.every((word) => text.includes(word));
  for (const group of document.querySelectorAll('#menu section')) /** @type {HTMLElement} */ (group).hidden = !group.querySelector('a:not([hidden])');
});

/** @param {string} tag @param {string} id */
function show(tag, id) {
  ui.layoutActions.show(['operations-tag', tag], true);
  ui.layoutActions.show(['operations', tag, id], true);
  requestAnimationFrame(() => document.getElementById(`operations-${tag}-${id}`)?.scrollIntoView());
}

/** The token shared by the pages, unless storage is blocked. */
function stored() {
  try {
    return sessionStorage.getItem('playhead.token');
  } catch {
    return null;
  }
}

/** @param {string} selector */
function find(selector) {
  const found = document.querySelector(selector);
  if (!(found instanceof HTMLElement)) throw new Error(`the page lacks ${selector}`);
  return found;
}

export {}; // a module, for await
