// @ts-check
// SPDX-License-Identifier: Apache-2.0

// Reports scripts that fail to load. It depends only on the language script.
addEventListener('error', async ({ target }) => {
  if (!(target instanceof HTMLScriptElement)) return;
  const [problem, text, again, connection] = ['#problem', '#problem-text', '#again', '#connection'].map((name) => document.querySelector(name));
  if (!(problem instanceof HTMLElement && text && again instanceof HTMLElement && connection)) return;
  const { t, localize } = await import('./language.js').catch(() => ({ t: String, localize() {} }));
  localize();
  text.textContent = t('The page could not be loaded as a whole.');
  connection.textContent = t('Offline');
  again.onclick = () => location.reload();
  problem.hidden = false;
}, true);
