/** Neural Clamping: what δ and T do to inputs and probabilities, together and apart. */
import { useState } from "preact/hooks";
import type { ComponentChildren } from "preact";
import type { Clamping, Estimate, Part, Planes, Sample, Trial } from "./data";
import { Axes, Figure, heightOf, linear, MARGIN, named, number, path, percentTick, type Point, share, whole } from "./plot";
import { Slider } from "./explorer";
import { Interval } from "./tables";

export const PARTS = ["none", "temperature", "delta", "both"] as const;
export const TITLES: Record<Part, string> = { none: "none", temperature: "T only", delta: "δ only", both: "both" };
const METRICS: [string, string][] = [["accuracy", "accuracy ↑"], ["nll", "log-loss ↓"], ["brier", "Brier ↓"], ["ece", "ECE ↓"]];
const FEW_PIXELS = 400; // up to which an image is drawn as squares with signs

export type Chosen = { sample: number; part: Part; onChoose: (chosen: { sample?: number; part?: Part }) => void };

/** The same with a choice of its own, for a page without an address to keep it in. */
export function ClampingReport({ clamping }: { clamping: Clamping }) {
  const [chosen, choose] = useState<{ sample: number; part: Part }>({ sample: 0, part: "both" });
  return <ClampingCharts clamping={clamping} {...chosen} onChoose={(change) => choose({ ...chosen, ...change })} />;
}

export function ClampingCharts({ clamping, sample, part, onChoose }: Chosen & { clamping: Clamping }) {
  const { classes, delta, temperatures, samples } = clamping, shown = PARTS.filter((name) => clamping.parts[name]);
  const now = shown.includes(part) ? part : shown.at(-1)!, place = Math.min(sample, samples.length - 1), input = samples[place];
  const moves = now === "delta" || now === "both", temperature = now === "both" ? temperatures.both : now === "temperature" ? temperatures.alone : null;
  const planes = isImage(delta.values) ? planesOf(delta.values) : null;
  return (
    <section class="clamp">
      <div class="charts three">
        <div class="inputs">
          <fieldset class="applied"><legend>Apply</legend>{shown.map((name) => (
            <label><input type="radio" name="part" value={name} checked={name === now} onChange={() => onChoose({ part: name })} /><span>{TITLES[name]}</span></label>))}</fieldset>
          {planes && input.image && (
            <div class="pictures">
              <Picture title="x, the image" seen={!moves}><Pixels values={input.image} low={delta.low} high={delta.high} alt={`Test image of class ${classes[input.label]}.`} /></Picture>
              <Picture title={delta.norm ? `δ, × ${delta.factor.toPrecision(2)}` : "δ = 0"} note={planes.length > 1 ? "grey: no change" : "+ lighter, − darker"}><Signed values={delta.values as Planes} limit={delta.limit} factor={delta.factor} /></Picture>
              <Picture title="x + δ" seen={moves}><Pixels values={input.moved ?? sum(input.image, planes)} low={delta.low} high={delta.high} alt="The same image with δ added; beyond black and white it is cut off here, not for the network." /></Picture>
            </div>)}
          {!planes && <Entries values={delta.values as number[]} names={delta.names} />}
          <p class="reading answer" aria-live="polite">Without calibration: {said(input, "none", classes)}. {now !== "none" && <>With {TITLES[now]}{temperature !== null && ` (T = ${temperature.toFixed(2)})`}: <output data-value="clamped">{said(input, now, classes)}</output>.</>}</p>
          <fieldset class="digits"><legend>Test sample</legend>{samples.map((one, i) => (
            <label key={one.row}><input type="radio" name="digit" checked={i === place} aria-label={said(one, "none", classes)} onChange={() => onChoose({ sample: i })} /><span>{one.image ? <Pixels values={one.image} low={delta.low} high={delta.high} /> : one.row}</span></label>))}</fieldset>
        </div>
        <Probabilities sample={input} part={now} classes={classes} />
        <Path trials={clamping.path} strength={clamping.strength} />
      </div>
      <h2>δ and T together and apart, on {whole(clamping.n.test)} test samples</h2>
      <Ablation clamping={clamping} shown={shown} now={now} />
      <p class="legend">Fitted on {whole(clamping.n.calibration)} other samples. With 95 % intervals. T only is temperature scaling, fitted without δ{temperatures.alone !== null && ` (T = ${temperatures.alone.toFixed(2)})`}; δ only is the clamped network without its T; both is the clamped network{temperatures.both !== null && ` (T = ${temperatures.both.toFixed(2)}, ‖δ‖ = ${delta.norm.toPrecision(3)})`}. T never changes which class is predicted; δ can.</p>
    </section>
  );
}

function Ablation({ clamping, shown, now }: { clamping: Clamping; shown: Part[]; now: Part }) {
  const range = (metric: string): [number, number] => {
    const ends = shown.map((name) => clamping.parts[name]![metric]).flatMap((found) => [found.low ?? found.value, found.high ?? found.value]);
    return [Math.min(...ends), Math.max(...ends)];
  };
  const cell = (name: Part, metric: string, found: Estimate) => (
    <td data-value={`${name}-${metric}`}><b>{number(found.value)}</b> <small>{number(found.low)} to {number(found.high)}</small><Interval dot={{ ...found, side: "alike" }} range={range(metric)} /></td>);
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="δ and T together and apart"><table>
      <thead><tr><th scope="col" class="text">applied</th>{METRICS.map(([, title]) => <th scope="col">{title}</th>)}</tr></thead>
      <tbody>{shown.map((name) => <tr key={name} class={name === now ? "chosen" : ""}><th scope="row" class="text">{TITLES[name]}{name === now && <span class="badge">shown</span>}</th>{METRICS.map(([metric]) => cell(name, metric, clamping.parts[name]![metric]))}</tr>)}</tbody></table></div>
  );
}

/** What the network makes of a sample, in words. */
function said({ probs, label, shown }: Sample, part: Part, classes: string[]): string {
  const values = probs[part]!, most = values.indexOf(Math.max(...values)), name = (place: number) => classes[shown ? shown[place] : place], true_ = shown ? shown.indexOf(label) : label;
  return most === true_ ? `${name(most)} with ${share(values[most])}, which is right` : `${name(most)} with ${share(values[most])}, but it is ${name(true_)} (${share(values[true_])})`;
}

function Picture({ title, seen, note, children }: { title: string; seen?: boolean; note?: string; children: ComponentChildren }) {
  return <figure class={seen ? "seen" : ""}><figcaption>{title}</figcaption>{children}<p class="legend">{seen ? "what the network sees" : note}</p></figure>;
}

const isImage = (values: Planes | number[]): values is Planes => Array.isArray(values[0]);
const planesOf = (values: Planes): number[][][] => (Array.isArray(values[0][0]) ? values : [values]) as number[][][];
const sum = (image: Planes, delta: number[][][]): number[][][] => planesOf(image).map((plane, c) => plane.map((line, y) => line.map((value, x) => value + delta[Math.min(c, delta.length - 1)][y][x])));
const level = (value: number): number => Math.round(255 * Math.max(0, Math.min(1, value)));

/** An image from black to white: few pixels as squares, many as a canvas. */
function Pixels({ values, low, high, alt }: { values: Planes; low: number; high: number; alt?: string }) {
  const planes = planesOf(values), rows = planes[0].length, columns = planes[0][0].length, words = alt ? { role: "img" as const, "aria-label": alt } : { "aria-hidden": "true" as const };
  const at = (x: number, y: number) => [0, 1, 2].map((c) => level((planes[Math.min(c, planes.length - 1)][y][x] - low) / (high - low)));
  if (rows * columns > FEW_PIXELS) return <canvas class="pixels" width={columns} height={rows} {...words} ref={(canvas) => paint(canvas, at)} />;
  return (
    <svg class="pixels" viewBox={`0 0 ${columns} ${rows}`} shape-rendering="crispEdges" {...words}>
      {planes[0].flatMap((line, y) => line.map((_, x) => <rect x={x} y={y} width="1" height="1" fill={`rgb(${at(x, y)})`} />))}</svg>
  );
}

function paint(canvas: HTMLCanvasElement | null, at: (x: number, y: number) => number[]): void {
  const context = canvas?.getContext("2d");
  if (!canvas || !context) return;
  const image = context.createImageData(canvas.width, canvas.height);
  for (let y = 0, i = 0; y < canvas.height; y++) for (let x = 0; x < canvas.width; x++, i += 4) image.data.set([...at(x, y), 255], i);
  context.putImageData(image, 0, 0);
}

/** δ: of grey images hue and a sign say whether a pixel is raised or lowered; of coloured ones it is added to grey. */
function Signed({ values, limit, factor }: { values: Planes; limit: number; factor: number }) {
  const planes = planesOf(values), flat = planes.flatMap((plane) => plane.flatMap((line, y) => line.map((value, x) => ({ x, y, value }))));
  const raised = flat.filter(({ value }) => value > 0).length, rows = planes[0].length, columns = planes[0][0].length;
  const alt = `δ: it makes ${whole(raised)} pixels lighter and ${whole(flat.length - raised)} darker or leaves them, by at most ${share(1 / factor)} of the range from black to white, drawn ${factor.toPrecision(2)} times as strong.`;
  if (planes.length > 1) return <canvas class="pixels delta" width={columns} height={rows} role="img" aria-label={alt} ref={(canvas) => paint(canvas, (x, y) => planes.map((plane) => level(0.5 + plane[y][x] / (2 * limit))))} />;
  // From white to the vermilion and blue of the figures.
  if (rows * columns > FEW_PIXELS) return <canvas class="pixels delta" width={columns} height={rows} role="img" aria-label={alt} ref={(canvas) => paint(canvas, (x, y) => { const part = planes[0][y][x] / limit, full = part > 0 ? [196, 80, 10] : [11, 106, 168]; return full.map((value) => Math.round(255 + Math.abs(part) * (value - 255))); })} />;
  const signs = flat.filter(({ value }) => Math.abs(value) > limit / 5).map(({ x, y, value }) => `M${x + 0.35} ${y + 0.5}h.3${value > 0 ? `M${x + 0.5} ${y + 0.35}v.3` : ""}`).join("");
  return (
    <svg class="pixels delta" viewBox={`0 0 ${columns} ${rows}`} role="img" aria-label={alt}>
      <g shape-rendering="crispEdges">{flat.map(({ x, y, value }) => <rect class={value > 0 ? "raised" : "lowered"} x={x} y={y} width="1" height="1" fill-opacity={(Math.abs(value) / limit).toFixed(3)} />)}</g>
      <path class="signs" d={signs} /></svg>
  );
}

/** δ of inputs that are no images: a bar for every number. */
function Entries({ values, names }: { values: number[]; names?: string[] }) {
  const limit = Math.max(...values.map(Math.abs)) || 1, most = values.map(Math.abs).indexOf(Math.max(...values.map(Math.abs))), name = (i: number) => names?.[i] ?? `entry ${i}`;
  return (
    <Figure name="delta" title={names ? "δ, added to each input: the largest of each group" : "δ, added to each input"} ratio={0.6} alt={`Bars of δ, ${whole(values.length)} numbers between ${number(Math.min(...values))} and ${number(Math.max(...values))}; the largest is ${name(most)}, ${number(values[most])}.`}>
      {(width) => {
        const height = heightOf(width, 0.6), right = width - MARGIN.right, x = named(values.map((_, i) => (names ? name(i) : String(i))), MARGIN.left, right), y = linear([-limit * 1.08, limit * 1.08], [height - MARGIN.bottom, MARGIN.top], (value) => String(value), 4), wide = Math.max(0.5, (0.76 * (right - MARGIN.left)) / values.length);
        return <>
          <Axes x={x} y={y} width={width} height={height} xTitle="Number of the input" yTitle="δ" />
          {values.map((value, i) => <rect class={value > 0 ? "raised" : "lowered"} x={x.at(i) - wide / 2} width={wide} y={Math.min(y.at(0), y.at(value))} height={Math.abs(y.at(value) - y.at(0))}><title>{`${name(i)}: ${number(value)}`}</title></rect>)}
          <line class="base" x1={MARGIN.left} x2={right} y1={y.at(0)} y2={y.at(0)} />
        </>;
      }}
    </Figure>
  );
}

function Probabilities({ sample, part, classes }: { sample: Sample; part: Part; classes: string[] }) {
  const before = sample.probs.none!, after = sample.probs[part]!, places = sample.shown ?? classes.map((_, i) => i);
  const bars = part === "none" ? [["before", before]] as const : [["before", before], ["after", after]] as const;
  return (
    <Figure name="probabilities" title={places.length < classes.length ? `Probability of ${places.length} classes` : "Probability of each class"}
      alt={`Probabilities of the classes. Without calibration: ${said(sample, "none", classes)}.${part === "none" ? "" : ` With ${TITLES[part]}: ${said(sample, part, classes)}.`}`}
      below={<p class="key"><span class="before"><i aria-hidden="true" />without calibration</span>{part !== "none" && <span class="after"><i aria-hidden="true" />{TITLES[part]}</span>}<span>✓ true class</span></p>}>
      {(width) => {
        const height = heightOf(width), right = width - MARGIN.right, foot = height - MARGIN.bottom, room = Math.floor((right - MARGIN.left) / places.length / 7);
        const x = named(places.map((i) => (i === sample.label ? `${clipped(classes[i], room - 2)} ✓` : clipped(classes[i], room))), MARGIN.left, right, false), y = linear([0, 1], [foot, MARGIN.top], percentTick), wide = ((right - MARGIN.left) / places.length) * (0.76 / bars.length);
        return <>
          <Axes x={x} y={y} width={width} height={height} xTitle="Class" yTitle="Probability, %" />
          {bars.map(([name, values], k) => <g class={name}>{values.map((value, i) => <rect x={x.at(i) + wide * (k - bars.length / 2)} width={wide} y={y.at(value)} height={foot - y.at(value)} data-share={value.toFixed(6)}><title>{`${classes[places[i]]}: ${share(value)}`}</title></rect>)}</g>)}
        </>;
      }}
    </Figure>
  );
}

const clipped = (name: string, most: number): string => (name.length <= Math.max(2, most) ? name : `${name.slice(0, Math.max(1, most - 1))}…`);

/** Change of the held-out log-loss from an infinite penalty on δ to a weak one; a slider reads it point by point. */
function Path({ trials, strength }: { trials: Trial[]; strength: number | null }) {
  const chosen = Math.max(0, trials.findIndex((trial) => trial.strength === strength)), [place, move] = useState(chosen), read = trials[Math.min(place, trials.length - 1)];
  const ends = trials.flatMap(({ change, standard_error: error }) => [change - error, change + error]), low = Math.min(...ends), high = Math.max(...ends, 0), room = (high - low || 1) * 0.08;
  const name = (trial: Trial) => (trial.strength === null ? "∞" : String(Number(trial.strength.toPrecision(2))));
  if (trials.length < 2) return <p class="legend">No strengths of the penalty on δ were tried on held-out samples, so that there is no path to show.</p>;
  return (
    <Figure name="path" title="Held-out log-loss at each strength of the penalty on δ"
      alt={`Change of the cross-validated log-loss against δ = 0: ${trials.map((trial) => `${number(trial.change)} at ${name(trial)}`).join(", ")}. Chosen: ${name(trials[chosen])}.`}
      below={<>
        <p class="reading answer" aria-live="polite">At strength <output data-value="strength">{name(read)}</output>{place === chosen && " (chosen)"}: <output data-value="change">{number(read.change)}</output> ± {number(read.standard_error)} (standard error), ‖δ‖ about {read.norm.toPrecision(3)}. Cross-validated on the calibration samples; ∞ means δ = 0.</p>
        <div class="controls"><Slider label="Strength" min={0} max={trials.length - 1} value={place} text={name(read)} onMove={move} /></div></>}>
      {(width) => {
        const height = heightOf(width), x = named(trials.map(name), MARGIN.left, width - MARGIN.right), y = linear([low - room, high + room], [height - MARGIN.bottom, MARGIN.top], (value) => String(Number(value.toPrecision(2))), 4);
        const pick = (event: PointerEvent) => {
          const frame = (event.currentTarget as SVGElement).ownerSVGElement!.getBoundingClientRect(), at = ((event.clientX - frame.left) * width) / frame.width;
          const away = trials.map((_, i) => Math.abs(x.at(i) - at));
          move(away.indexOf(Math.min(...away)));
        };
        return <>
          <Axes x={x} y={y} width={width} height={height} xTitle="Strength of the penalty, strong to weak" yTitle="Change of log-loss" />
          <path class="whisker" d={trials.map((trial, i) => `M${x.at(i).toFixed(1)} ${y.at(trial.change - trial.standard_error).toFixed(1)}V${y.at(trial.change + trial.standard_error).toFixed(1)}`).join("")} />
          <path class="curve" d={path(trials.map((trial, i): Point => [x.at(i), y.at(trial.change)]))} />
          <g class="mark"><line x1={x.at(chosen)} x2={x.at(chosen)} y1={height - MARGIN.bottom} y2={MARGIN.top} /><text x={x.at(chosen)} y={MARGIN.top + 9} dx={chosen > trials.length / 2 ? -5 : 5} text-anchor={chosen > trials.length / 2 ? "end" : "start"}>chosen: {name(trials[chosen])}</text></g>
          <g class="dot"><circle cx={x.at(place)} cy={y.at(read.change)} r="5" /></g>
          <rect class="hit" x={MARGIN.left} y={MARGIN.top} width={width - MARGIN.left - MARGIN.right} height={height - MARGIN.top - MARGIN.bottom} onPointerMove={pick} onPointerDown={pick} />
        </>;
      }}
    </Figure>
  );
}
