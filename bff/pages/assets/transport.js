// @ts-check
// SPDX-License-Identifier: Apache-2.0
import { find, write } from './dom.js';
import { clock, spoken } from './format.js';
import { t } from './language.js';

/** The buttons and the slider of a media element. @param {HTMLMediaElement} media */
export function transport(media) {
  const play = find('#play', HTMLButtonElement);
  const slider = find('#position', HTMLInputElement);
  const speed = find('#speed', HTMLSelectElement);
  const muted = find('#muted', HTMLInputElement);
  let held = false; // the user drags the slider: playback must not move it
  let scrolled = false; // a touch on the slider scrolled the page: no seek
  const show = () => {
    if (!held) slider.value = String(Math.round(media.currentTime));
    const ms = (held ? Number(slider.value) : media.currentTime) * 1000;
    write(play, media.paused ? t('Play') : t('Pause'));
    write(find('#at', HTMLElement), clock(ms));
    slider.setAttribute('aria-valuetext', t('{at} of {end}', { at: spoken(ms), end: spoken(media.duration * 1000 || 0) }));
  };
  const skip = (/** @type {number} */ seconds) => () => {
    media.currentTime = Math.max(0, Math.min(media.duration || 0, media.currentTime + seconds));
  };
  play.onclick = () => (media.paused ? media.play() : media.pause());
  find('#back', HTMLButtonElement).onclick = skip(-10);
  find('#ahead', HTMLButtonElement).onclick = skip(10);
  slider.onpointerdown = () => (held = true);
  slider.oninput = () => {
    [held, scrolled] = [true, false];
    show();
  };
  slider.onchange = () => {
    held = false;
    if (!scrolled) media.currentTime = Number(slider.value);
    scrolled = false;
  };
  addEventListener('pointerup', () => (held = false)); // a click without a move fires no change event
  addEventListener('pointercancel', () => {
    if (!held) return;
    [held, scrolled] = [false, true]; // a change event may follow
    show();
  });
  speed.onchange = () => (media.playbackRate = Number(speed.value));
  muted.onchange = () => (media.muted = muted.checked);
  media.addEventListener('loadedmetadata', () => {
    slider.max = String(Math.floor(media.duration));
    write(find('#length', HTMLElement), clock(media.duration * 1000));
  });
  for (const type of ['timeupdate', 'seeked', 'play', 'pause', 'ended', 'loadedmetadata']) media.addEventListener(type, show);
}

/** Enables the controls. */
export function enable() {
  for (const name of ['#play', '#back', '#ahead']) find(name, HTMLButtonElement).disabled = false;
  find('#position', HTMLInputElement).disabled = false;
}
