// @ts-check
// SPDX-License-Identifier: Apache-2.0

// Charts in SVG, without dependencies. Colors come from stats.css, so that they follow the page's theme.

/** @typedef {{value: number, text: string}} Mark a value, and what it says when pointed at */

const cell = 14; // a day's square with its gap
const gutter = 34; // left of the squares
const above = 18; // for the names of months

/** Width of a chart with that many weeks in a row. @param {number} weeks */
const widthOf = (weeks) => gutter + weeks * cell;

/** @param {string} tag @param {Record<string, any>} [props] @param {...(Node | string)} children */
function svg(tag, props = {}, ...children) {
  const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(props)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** @param {string} label @param {number} width @param {number} height @param {Node[]} children */
function chart(label, width, height, children) {
  return svg('svg', { class: 'chart', role: 'img', 'aria-label': label, viewBox: `0 0 ${width} ${height}` }, ...children);
}

/** @param {number} x @param {number} y @param {number} width @param {number} height @param {number} level 0 to 4 @param {string} text */
function rect(x, y, width, height, level, text) {
  return svg('rect', { x, y, width, height, rx: 2, class: `level${level}` }, svg('title', {}, text));
}

/** @param {number} x @param {number} y @param {string} text @param {'start' | 'middle' | 'end'} [anchor] */
function words(x, y, text, anchor = 'start') {
  return svg('text', { x, y, 'text-anchor': anchor }, text);
}

/**
 * A calendar with a column per week, from Monday on, and rows of so many weeks.
 * @param {string} label @param {(Mark & {date: Date})[]} days in order, at midnight UTC
 * @param {number} weeks in a row @param {(options: Intl.DateTimeFormatOptions) => (date: Date) => string} format of dates in UTC
 */
export function calendar(label, days, weeks, format) {
  const [month, weekday] = [format({ month: 'short' }), format({ weekday: 'short' })];
  const most = Math.max(1, ...days.map(({ value }) => value));
  const first = (days[0].date.getUTCDay() + 6) % 7; // empty squares before it
  const block = above + 7 * cell + 6;
  const nodes = days.flatMap(({ date, value, text }, i) => {
    const [week, day] = [Math.floor((first + i) / 7), (first + i) % 7];
    const [x, y] = [gutter + (week % weeks) * cell, Math.floor(week / weeks) * block + above];
    const begins = date.getUTCDate() === 1 && (week % weeks) < weeks - 1;
    return [
      ...(begins ? [words(x, y - 5, month(date))] : []),
      ...(week % weeks === 0 && day % 2 === 0 && day < 6 ? [words(0, y + day * cell + 11, weekday(date))] : []),
      rect(x, y + day * cell, cell - 2, cell - 2, Math.ceil((4 * value) / most), text),
    ];
  });
  const rows = Math.ceil((first + days.length) / 7 / weeks);
  return chart(label, widthOf(weeks), rows * block, nodes);
}

/**
 * Bars, as wide together as a calendar with so many weeks in a row.
 * @param {string} label @param {(Mark & {name: string, short: string})[]} all @param {number} weeks
 */
export function bars(label, all, weeks) {
  const [high, most, step] = [120, Math.max(1, ...all.map(({ value }) => value)), widthOf(weeks) / all.length];
  const nodes = all.flatMap(({ name, short, value, text }, i) => {
    const [height, middle] = [Math.max(value > 0 ? 2 : 1, (high * value) / most), (i + 0.5) * step];
    return [
      rect(i * step + 2, above + high - height, step - 4, height, value > 0 ? 4 : 0, text),
      words(middle, above + high + 16, name, 'middle'),
      ...(value > 0 ? [words(middle, above + high - height - 5, short, 'middle')] : []),
    ];
  });
  return chart(label, widthOf(weeks), above + high + 22, nodes);
}

/**
 * Draws lines of text and charts below each other, in the page's colors, and resolves to a PNG.
 * @param {string[]} lines @param {SVGElement[]} charts @returns {Promise<Blob>}
 */
export async function png(lines, charts) {
  const [scale, margin, line] = [2, 24, 22];
  const sizes = charts.map((c) => (c.getAttribute('viewBox') ?? '').split(' ').slice(2).map(Number));
  const canvas = document.createElement('canvas');
  canvas.width = scale * (Math.max(...sizes.map(([width]) => width)) + 2 * margin);
  canvas.height = scale * (sizes.reduce((sum, [, height]) => sum + height + margin, 0) + lines.length * line + 2 * margin);
  const paint = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
  const { backgroundColor, color, fontFamily } = getComputedStyle(document.body);
  paint.fillStyle = backgroundColor;
  paint.fillRect(0, 0, canvas.width, canvas.height);
  paint.scale(scale, scale);
  paint.translate(margin, margin);
  paint.fillStyle = color;
  lines.forEach((text, i) => {
    paint.font = `${i === 0 ? 'bold 18px' : '14px'} ${fontFamily}`;
    paint.fillText(text, 0, (i + 0.7) * line);
  });
  paint.translate(0, lines.length * line + margin);
  charts.forEach((c, i) => {
    for (const node of c.querySelectorAll('rect, text')) draw(paint, node, fontFamily);
    paint.translate(0, sizes[i][1] + margin);
  });
  return new Promise((resolve, reject) => {
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error('no PNG'))), 'image/png');
  });
}

/** @param {CanvasRenderingContext2D} paint @param {Element} node @param {string} font */
function draw(paint, node, font) {
  const style = getComputedStyle(node);
  const [x, y, width, height] = ['x', 'y', 'width', 'height'].map((name) => Number(node.getAttribute(name)));
  paint.fillStyle = style.fill;
  paint.globalAlpha = Number(style.fillOpacity);
  if (node.tagName === 'rect') return paint.fillRect(x, y, width, height);
  paint.font = `12px ${font}`;
  paint.textAlign = node.getAttribute('text-anchor') === 'middle' ? 'center' : 'start';
  paint.fillText(node.textContent ?? '', x, y);
}
