/** Axes, scales and the frame of a chart. */
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";

export interface Scale { at: (value: number) => number; ticks: number[]; text: (value: number) => string }
export type Point = [number, number];

export const share = (value: number, digits = 1): string => `${(100 * value).toFixed(digits)} %`;
export const whole = (value: number): string => value.toLocaleString("en-US");

export function number(value: number | null | undefined): string {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  return value !== 0 && Math.abs(value) < 0.0005 ? value.toExponential(2) : value.toFixed(4);
}

/** A long name without its middle: names often differ at both ends. */
export const short = (name: string, most: number): string => (name.length <= most ? name : `${name.slice(0, Math.ceil(most / 2) - 1)}…${name.slice(-Math.floor(most / 2))}`);

/** Long names without their middle or, where that leaves equal ones, the part in which those differ. */
export function shortened(names: string[], most: number): Map<string, string> {
  const groups = new Map<string, string[]>();
  for (const name of new Set(names)) groups.set(short(name, most), [...(groups.get(short(name, most)) ?? []), name]);
  return new Map([...groups].flatMap(([text, alike]) => {
    let shared = 0;
    while (alike.every((name) => name[shared] === alike[0][shared]) && shared < alike[0].length) shared++;
    const start = Math.max(1, shared - Math.ceil(most / 2));
    return alike.map((name): [string, string] => [name, alike.length < 2 ? text : `…${name.slice(start, start + most - 2).trim()}…`]);
  }));
}

/** Round numbers in a range, about as many as asked for. */
function roundTicks(low: number, high: number, about: number): number[] {
  const raw = (high - low) / about, power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= raw * 0.999)!;
  const ticks: number[] = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) ticks.push(Number((i * step).toPrecision(12)));
  return ticks;
}

export function linear([low, high]: Point, [start, end]: Point, text: (value: number) => string, about = 5): Scale {
  const at = (value: number) => start + ((value - low) / (high - low || 1)) * (end - start);
  return { at, ticks: roundTicks(low, high, about), text };
}

export function logarithmic([low, high]: Point, [start, end]: Point): Scale {
  const at = (value: number) => start + (Math.log(value / low) / Math.log(high / low)) * (end - start);
  const ticks: number[] = [];
  for (let power = Math.ceil(Math.log2(low) - 1e-9); 2 ** power <= high * 1.000001; power++) ticks.push(2 ** power);
  const every = Math.ceil(ticks.length / 8);
  return { at, ticks: ticks.filter((_, i) => i % every === 0), text: (value) => String(Number(value.toPrecision(3))) };
}

/** Evenly spaced places with names; where there is no room for all names, every second or third. */
export function named(names: string[], start: number, end: number, some = true): Scale {
  const every = some ? Math.max(1, Math.ceil((names.length * 8 * Math.max(...names.map((name) => name.length))) / (end - start))) : 1;
  return { at: (i) => start + ((i + 0.5) / names.length) * (end - start), ticks: names.map((_, i) => i).filter((i) => i % every === 0), text: (i) => names[i] };
}

/** The place to which arrow keys, Home and End lead from another; undefined for other keys. */
export function walked(event: KeyboardEvent, at: number, count: number): number | undefined {
  const step = { ArrowLeft: -1, ArrowRight: 1, Home: -count, End: count }[event.key];
  if (step === undefined) return undefined;
  event.preventDefault();
  return Math.max(0, Math.min(count - 1, at + step));
}

export const percentTick = (value: number): string => String(Number((100 * value).toPrecision(6)));

/** An SVG path through points; NaN breaks it. */
export function path(points: Point[]): string {
  let pen = "M", drawn = "";
  for (const [x, y] of points) {
    if (Number.isNaN(x) || Number.isNaN(y)) { pen = "M"; continue; }
    drawn += `${pen}${x.toFixed(1)} ${y.toFixed(1)}`;
    pen = "L";
  }
  return drawn;
}

/** The outline between two lines over the same x. */
export const band = (x: number[], low: number[], high: number[], xs: Scale, ys: Scale): string =>
  path([...x.map((value, i): Point => [xs.at(value), ys.at(high[i])]), ...x.map((value, i): Point => [xs.at(value), ys.at(low[i])]).reverse()]) + "Z";

export const MARGIN = { left: 60, right: 14, top: 14, bottom: 40 };

/** A title, a picture with its text alternative, and below it what a reader moves. */
export function Figure(props: {
  name: string; title: string; alt: string; children: (width: number) => ComponentChildren; below?: ComponentChildren; ratio?: number; most?: number; steps?: string;
  onWalk?: (event: KeyboardEvent) => void; onLeave?: () => void; // makes it a place for arrow keys
}) {
  const frame = useRef<HTMLDivElement>(null), [width, setWidth] = useState(380);
  useLayoutEffect(() => {
    const measure = () => { const found = Math.round(frame.current!.clientWidth); if (found > 0) setWidth(found); };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(frame.current!);
    return () => observer.disconnect();
  }, []);
  const height = heightOf(width, props.ratio, props.most);
  return (
    <figure data-chart={props.name}>
      <figcaption>{props.title}</figcaption>
      <div class="frame" ref={frame} onPointerLeave={props.onLeave} onBlur={props.onLeave} onKeyDown={props.onWalk}
        {...(props.onWalk && { tabIndex: 0, role: "group", "aria-label": `${props.title}: arrow keys read it ${props.steps ?? "bin"} by ${props.steps ?? "bin"}` })}>
        <svg viewBox={`0 0 ${width} ${height}`} width={width} height={height} role="img" aria-label={props.alt}>{props.children(width)}</svg>
      </div>
      {props.below}
    </figure>
  );
}

export const heightOf = (width: number, ratio = 0.84, most = 420): number => Math.round(Math.min(width * ratio, most));

export function Axes({ x, y, width, height, xTitle, yTitle }: { x: Scale; y: Scale; width: number; height: number; xTitle: string; yTitle: string }) {
  const bottom = height - MARGIN.bottom, right = width - MARGIN.right;
  return (
    <g class="axes" aria-hidden="true">
      {y.ticks.map((tick) => <g><line class="grid" x1={MARGIN.left} x2={right} y1={y.at(tick)} y2={y.at(tick)} /><text x={MARGIN.left - 6} y={y.at(tick)} dy=".32em" text-anchor="end">{y.text(tick).replace(/^-/, "−")}</text></g>)}
      {x.ticks.map((tick) => <text x={Math.min(x.at(tick), width - 3.4 * x.text(tick).length)} y={bottom + 16} text-anchor="middle">{x.text(tick)}</text>)}
      <line class="base" x1={MARGIN.left} x2={right} y1={bottom} y2={bottom} />
      <text class="title" x={(MARGIN.left + right) / 2} y={height - 5} text-anchor="middle">{xTitle}</text>
      <text class="title" transform={`translate(10 ${(MARGIN.top + bottom) / 2}) rotate(-90)`} text-anchor="middle">{yTitle}</text>
    </g>
  );
}
