// @ts-check
// SPDX-License-Identifier: Apache-2.0
import { clock } from './format.js';

/**
 * Draws the position: sound has no picture.
 * @param {HTMLCanvasElement} canvas @param {HTMLMediaElement} media
 */
export function draw(canvas, media) {
  const still = matchMedia('(prefers-reduced-motion: reduce)').matches;
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
  const { width, height } = canvas;
  const frame = () => {
    const at = media.currentTime;
    const hue = (at * 3 + 220) % 360;
    pen.fillStyle = `oklch(30% 0.08 ${hue})`;
    pen.fillRect(0, 0, width, height);
    pen.fillStyle = `oklch(62% 0.14 ${hue} / 0.55)`;
    for (let i = 0; i < 48; i++) {
      const wave = still ? 0.3 : 0.25 + 0.2 * Math.sin(at * 1.7 + i * 0.4) + 0.12 * Math.sin(at * 0.9 - i * 0.9);
      const tall = Math.max(0.04, wave) * height * 0.55;
      pen.fillRect(i * 20 + 4, height - tall, 12, tall);
    }
    pen.fillStyle = '#fff';
    pen.textAlign = 'center';
    pen.font = '700 112px system-ui, sans-serif';
    pen.fillText(clock(at * 1000), width / 2, height / 2 + 20);
  };
  const loop = () => {
    frame();
    if (!media.paused) requestAnimationFrame(loop);
  };
  media.addEventListener('play', loop);
  for (const type of ['seeked', 'loadedmetadata', 'pause', 'ended']) media.addEventListener(type, frame);
  frame();
}
