/** Neural Clamping of a small network: what δ and T do to its inputs and probabilities, together and apart. */
import { Axes, Figure, heightOf, linear, MARGIN, number, percentTick, type Scale, share, whole } from "../plot";
import type { Answer } from "./client";
import { Lines, Progress, Trouble, useTask } from "./parts";
import { PARTS, type Part } from "./state";

interface Estimate { value: number; low: number | null; high: number | null }
interface Digit { row: number; label: number; image: number[][]; moved: number[][]; probs: Partial<Record<Part, number[]>> }
interface Trial { strength: number | null; change: number; standard_error: number; norm: number }
interface Clamped {
  verdict: { headline: string; tone: string }; classes: string[]; parts: Partial<Record<Part, Record<string, Estimate>>>; samples: Digit[];
  delta: { values: number[][]; factor: number; limit: number; norm: number; low: number; high: number };
  temperatures: { both: number | null; alone: number | null }; path: Trial[]; strength: number | null; notes: string[];
  n: { calibration: number; test: number }; files: Record<string, string>; lines: Answer["lines"];
}
const TITLES: Record<Part, string> = { none: "none", temperature: "T only", delta: "δ only", both: "both" };
const METRICS: [string, string][] = [["accuracy", "accuracy ↑"], ["nll", "log-loss ↓"], ["brier", "Brier ↓"], ["ece", "ECE ↓"]];

type Chosen = { sample: number; part: Part; onChoose: (chosen: { sample?: number; part?: Part }) => void };

export function Clamp({ bins, seed, ...chosen }: { bins: number; seed: number } & Chosen) {
  const { job, done, error, cancel } = useTask<Clamped>("clamp", { n_bins: bins, seed });
  return (
    <section class="clamp">
      <h2>Neural Clamping</h2>
      <p class="legend">Calibrates a network from both ends and leaves its weights alone. <b>δ</b> is one small picture that is added to every input. <b>T</b>, the temperature, is one number that all scores of the network are divided by. Here both are fitted to a small network that has learned 100 hand-written digits by heart, and is too sure of others.</p>
      {error && <Trouble message={error} />}
      {!done && !error && <><Progress job={job} onCancel={cancel} /><p class="legend">Training and fitting take about half a minute, once for as long as the studio runs.</p></>}
      {done && <Result {...chosen} job={done.job} answer={done.answer} />}
    </section>
  );
}

function Result({ job, answer, sample, part, onChoose }: Chosen & { job: string; answer: Clamped }) {
  const { classes, delta, temperatures } = answer, shown = PARTS.filter((name) => answer.parts[name]);
  const now = shown.includes(part) ? part : "none", place = Math.min(sample, answer.samples.length - 1), digit = answer.samples[place];
  const moves = now === "delta" || now === "both", temperature = now === "both" ? temperatures.both : now === "temperature" ? temperatures.alone : null;
  const link = (name: string, title: string) => <a href={`/api/jobs/${job}/files/${name}`} download>{title}</a>;
  return (
    <>
      <div class={`verdict ${answer.verdict.tone}`}><p class="headline">{answer.verdict.headline}</p></div>
      <fieldset class="digits"><legend>Test sample</legend>{answer.samples.map((one, i) => (
        <label key={one.row}><input type="radio" name="digit" checked={i === place} aria-label={said(one, "none", classes)} onChange={() => onChoose({ sample: i })} /><span><Pixels values={one.image} low={delta.low} high={delta.high} /></span></label>))}</fieldset>
      <fieldset class="applied"><legend>Apply</legend>{shown.map((name) => (
        <label><input type="radio" name="part" value={name} checked={name === now} onChange={() => onChoose({ part: name })} /><span>{TITLES[name]}</span></label>))}</fieldset>
      <div class="pictures">
        <Picture title="x, the image" seen={!moves}><Pixels values={digit.image} low={delta.low} high={delta.high} alt={`Test image of a ${classes[digit.label]}.`} /></Picture>
        <Picture title={`δ, × ${delta.factor.toPrecision(2)}`} note={`+ lighter, − darker; drawn ${delta.factor.toPrecision(2)} times as strong`}><Signed values={delta.values} limit={delta.limit} /></Picture>
        <Picture title="x + δ" seen={moves}><Pixels values={digit.moved} low={delta.low} high={delta.high} alt="The same image with δ added; beyond black and white it is cut off here, not for the network." /></Picture>
      </div>
      <p class="reading answer" aria-live="polite">Without calibration: {said(digit, "none", classes)}. {now !== "none" && <>With {TITLES[now]}{temperature !== null && ` (T = ${temperature.toFixed(2)})`}: <output data-value="clamped">{said(digit, now, classes)}</output>.</>}</p>
      <div class="charts">
        <Probabilities digit={digit} part={now} classes={classes} />
        <Path answer={answer} />
      </div>
      <h2>On {whole(answer.n.test)} test samples</h2>
      <p class="legend">Fitted on {whole(answer.n.calibration)} others. With 95 % intervals. T only is temperature scaling, fitted without δ{temperatures.alone !== null && ` (T = ${temperatures.alone.toFixed(2)})`}; δ only is the clamped network without its T; both is the clamped network{temperatures.both !== null && ` (T = ${temperatures.both.toFixed(2)}, ‖δ‖ = ${delta.norm.toFixed(2)})`}. T never changes which class is predicted; δ can.</p>
      <div class="scroll" tabIndex={0} role="region" aria-label="Metrics"><table>
        <thead><tr><th scope="col" class="text">applied</th>{METRICS.map(([, title]) => <th scope="col">{title}</th>)}</tr></thead>
        <tbody>{shown.map((name) => <tr key={name} class={name === now ? "chosen" : ""}><th scope="row" class="text">{TITLES[name]}{name === now && <span class="badge">shown</span>}</th>{METRICS.map(([metric]) => { const found = answer.parts[name]![metric]; return <td data-value={`${name}-${metric}`}><b>{number(found.value)}</b> <small>{number(found.low)} to {number(found.high)}</small></td>; })}</tr>)}</tbody></table></div>
      {answer.notes.map((note) => <p class="legend">{note}</p>)}
      <h2>Take home</h2>
      <p>{link("clamped.safetensors", "The clamped network")} with its weights (<code>load_clamped("clamped.safetensors", DigitsCNN())</code>), {link("report.html", "the report")} of <code>calibrant clamp</code>.</p>
      <Lines lines={answer.lines} />
    </>
  );
}

/** What the network makes of a sample, in words. */
function said({ probs, label }: Digit, part: Part, classes: string[]): string {
  const values = probs[part]!, most = values.indexOf(Math.max(...values));
  return most === label ? `${classes[most]} with ${share(values[most])}, which is right` : `${classes[most]} with ${share(values[most])}, but it is a ${classes[label]} (${share(values[label])})`;
}

function Picture({ title, seen, note, children }: { title: string; seen?: boolean; note?: string; children: preact.ComponentChildren }) {
  return <figure class={seen ? "seen" : ""}><figcaption>{title}</figcaption>{children}<p class="legend">{seen ? "what the network sees" : note}</p></figure>;
}

/** An image as squares, from black to white. */
function Pixels({ values, low, high, alt }: { values: number[][]; low: number; high: number; alt?: string }) {
  const grey = (value: number) => { const level = Math.round(255 * Math.max(0, Math.min(1, (value - low) / (high - low)))); return `rgb(${level},${level},${level})`; };
  return (
    <svg class="pixels" viewBox={`0 0 ${values[0].length} ${values.length}`} shape-rendering="crispEdges" {...(alt ? { role: "img", "aria-label": alt } : { "aria-hidden": "true" })}>
      {values.flatMap((line, y) => line.map((value, x) => <rect x={x} y={y} width="1" height="1" fill={grey(value)} />))}</svg>
  );
}

/** δ as squares: hue and a sign say whether a pixel is raised or lowered, strength of colour by how much. */
function Signed({ values, limit }: { values: number[][]; limit: number }) {
  const flat = values.flatMap((line, y) => line.map((value, x) => ({ x, y, value })));
  const signs = flat.filter(({ value }) => Math.abs(value) > limit / 5).map(({ x, y, value }) => `M${x + 0.35} ${y + 0.5}h.3${value > 0 ? `M${x + 0.5} ${y + 0.35}v.3` : ""}`).join("");
  const raised = flat.filter(({ value }) => value > 0).length;
  return (
    <svg class="pixels delta" viewBox={`0 0 ${values[0].length} ${values.length}`} role="img" aria-label={`δ: it makes ${raised} pixels lighter and ${flat.length - raised} darker or leaves them, by at most ${number(limit)} of the range from black to white.`}>
      <g shape-rendering="crispEdges">{flat.map(({ x, y, value }) => <rect class={value > 0 ? "raised" : "lowered"} x={x} y={y} width="1" height="1" fill-opacity={(Math.abs(value) / limit).toFixed(3)} />)}</g>
      <path class="signs" d={signs} /></svg>
  );
}

/** Evenly spaced places with names. */
const named = (names: string[], start: number, end: number): Scale => ({ at: (i) => start + ((i + 0.5) / names.length) * (end - start), ticks: names.map((_, i) => i), text: (i) => names[i] });

function Probabilities({ digit, part, classes }: { digit: Digit; part: Part; classes: string[] }) {
  const before = digit.probs.none!, after = digit.probs[part]!;
  const bars = part === "none" ? [["before", before]] as const : [["before", before], ["after", after]] as const;
  return (
    <Figure name="probabilities" title="Probability of each class" ratio={0.6}
      alt={`Probabilities of the classes. Without calibration: ${said(digit, "none", classes)}.${part === "none" ? "" : ` With ${TITLES[part]}: ${said(digit, part, classes)}.`}`}
      below={<p class="key"><span class="before"><i aria-hidden="true" />without calibration</span>{part !== "none" && <span class="after"><i aria-hidden="true" />{TITLES[part]}</span>}<span>✓ true class</span></p>}>
      {(width) => {
        const height = heightOf(width, 0.6), right = width - MARGIN.right, foot = height - MARGIN.bottom;
        const x = named(classes.map((name, i) => (i === digit.label ? `${name} ✓` : name)), MARGIN.left, right), y = linear([0, 1], [foot, MARGIN.top], percentTick), wide = ((right - MARGIN.left) / classes.length) * (0.76 / bars.length);
        return <>
          <Axes x={x} y={y} width={width} height={height} xTitle="Class" yTitle="Probability, %" />
          {bars.map(([name, values], k) => <g class={name}>{values.map((value, i) => <rect x={x.at(i) + wide * (k - bars.length / 2)} width={wide} y={y.at(value)} height={foot - y.at(value)} data-share={value.toFixed(6)} />)}</g>)}
        </>;
      }}
    </Figure>
  );
}

/** Change of the held-out log-loss from an infinite penalty on δ to a weak one. */
function Path({ answer: { path: trials, strength } }: { answer: Clamped }) {
  const chosen = Math.max(0, trials.findIndex((trial) => trial.strength === strength)), best = trials[chosen];
  const ends = trials.flatMap(({ change, standard_error: error }) => [change - error, change + error]), low = Math.min(...ends), high = Math.max(...ends, 0), room = (high - low || 1) * 0.08;
  const name = (trial: Trial) => (trial.strength === null ? "∞" : String(Number(trial.strength.toPrecision(2))));
  return (
    <Figure name="path" title="Held-out log-loss at each strength of the penalty on δ" ratio={0.6}
      alt={`Change of the cross-validated log-loss against δ = 0: ${trials.map((trial) => `${number(trial.change)} at ${name(trial)}`).join(", ")}. Chosen: ${name(best)}.`}
      below={<p class="reading">The weaker the penalty, the larger δ may grow; ∞ means δ = 0. Chosen by cross-validation on the calibration samples: <output>{name(best)}</output>, {number(best.change)} ± {number(best.standard_error)} (standard error), ‖δ‖ about {best.norm.toFixed(2)}.</p>}>
      {(width) => {
        const height = heightOf(width, 0.6), x = named(trials.map(name), MARGIN.left, width - MARGIN.right), y = linear([low - room, high + room], [height - MARGIN.bottom, MARGIN.top], (value) => value.toFixed(2), 4);
        return <>
          <Axes x={x} y={y} width={width} height={height} xTitle="Strength of the penalty, strong to weak" yTitle="Change of log-loss" />
          <path class="whisker" d={trials.map((trial, i) => `M${x.at(i).toFixed(1)} ${y.at(trial.change - trial.standard_error).toFixed(1)}V${y.at(trial.change + trial.standard_error).toFixed(1)}`).join("")} />
          <path class="curve" d={trials.map((trial, i) => `${i ? "L" : "M"}${x.at(i).toFixed(1)} ${y.at(trial.change).toFixed(1)}`).join("")} />
          <g class="dot"><circle cx={x.at(chosen)} cy={y.at(best.change)} r="5" /></g>
          <g class="mark"><text x={x.at(chosen)} y={y.at(best.change) + 5} dx={chosen > trials.length - 3 ? -10 : 10} text-anchor={chosen > trials.length - 3 ? "end" : "start"}>chosen</text></g>
        </>;
      }}
    </Figure>
  );
}
