/** The studio: open a file, evaluate it, calibrate it, take the result home. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Slider } from "../explorer";
import { share, short, whole } from "../plot";
import { Clamp } from "./clamp";
import type { Answer, Samples, Source } from "./client";
import { openSession, run } from "./client";
import { Learn } from "./learn";
import { Open } from "./open";
import { Overlay } from "./overlay";
import { Files, Lines, Progress, Rendered, Trouble, useTask } from "./parts";
import { needsFile, type Screen, type State, useAddress } from "./state";

const SCREENS: [Screen, string][] = [["open", "Open"], ["evaluate", "Evaluate"], ["models", "Compare models"], ["calibrate", "Calibrate"], ["clamp", "Neural Clamping"], ["learn", "What is calibration?"]];

export function Studio() {
  const [state, go] = useAddress(), { source } = state, heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => { heading.current?.focus({ preventScroll: true }); document.title = `${SCREENS.find(([screen]) => screen === state.screen)![1]} · Calibrant studio`; }, [state.screen, !state.baseline]);
  const calibrate = () => go({ screen: "calibrate" });
  const step = { bins: state.bins, seed: state.seed, onCalibrate: calibrate };
  return (
    <>
      <header><h1 ref={heading} tabIndex={-1}>Calibrant <small>studio</small></h1>
        <nav aria-label="Steps">{SCREENS.map(([screen, title]) => (
          <button type="button" aria-current={screen === state.screen ? "page" : undefined} disabled={needsFile(screen) && !source} onClick={() => go({ screen })}>{title}</button>))}</nav></header>
      {state.screen === "open" && <Open source={source} onChoose={(chosen) => go({ source: chosen, baseline: null, screen: "evaluate" })} />}
      {state.screen === "evaluate" && source && <Evaluate {...step} source={source} onModels={() => go({ screen: "models" })} />}
      {state.screen === "models" && source && <Models {...step} source={source} baseline={state.baseline} onChoose={(baseline) => go({ baseline })} />}
      {state.screen === "learn" && source && <Walk {...step} source={source} />}
      {state.screen === "clamp" && <Clamp bins={state.bins} seed={state.seed} network={state.network} sample={state.sample} part={state.part} onChoose={go} />}
      {state.screen === "calibrate" && source && <Calibrate state={state} source={source} go={go} />}
    </>
  );
}

/** What was noticed while the answer was computed; the answer itself stands first. */
const Notes = ({ notes }: { notes: string[] }) => <>{notes.map((note) => <p class="legend">Note: {note}</p>)}</>;

type Step = { source: Source; bins: number; seed: number; onCalibrate: () => void };

function Evaluate({ source, bins, seed, onCalibrate, onModels }: Step & { onModels: () => void }) {
  const { job, done, error, cancel, again } = useTask<Answer>("evaluate", { source, n_bins: bins, seed });
  const [wanted, want] = useState<Wanted>({ low: 0.9, high: 1, wrong: true }), samples = useRef<HTMLElement>(null);
  const picks = useMemo(() => {
    const show = (chosen: Wanted) => {
      want(chosen);
      samples.current?.focus({ preventScroll: true });
      samples.current?.scrollIntoView({ behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
    };
    return { bin: (low: number, high: number, of: string) => show({ low, high, wrong: false, ...(of && { of }) }), predicted: (name: string) => show({ low: 0, high: 1, wrong: false, predicted: name }), slice: (column: string, value: string) => show({ low: 0, high: 1, wrong: false, within: { column, value } }) };
  }, []);
  if (error) return <Trouble message={error} onAgain={again} />;
  if (!done) return <Progress job={job} onCancel={cancel} />;
  const { answer } = done;
  return (
    <>
      <Rendered html={answer.html} charts={answer.charts} picks={picks} />
      <Notes notes={answer.notes} />
      <section class="samples" ref={samples} tabIndex={-1}><SampleList source={source} wanted={wanted} onWant={want} classes={answer.charts.views[0].classes?.name ?? []} /></section>
      <p><button type="button" class="primary" onClick={onCalibrate}>Calibrate</button>{!source.split && <span class="legend"> by cross-validation on these samples; or choose a split under Open</span>}</p>
      <p><button type="button" onClick={onModels}>Compare with another model</button></p>
      <TakeHome source={source} bins={bins} seed={seed} />
      <Lines lines={answer.lines} />
    </>
  );
}

/** The report, figures and samples as files, which are made when they are asked for: drawing takes seconds. */
function TakeHome({ source, baseline, bins, seed }: { source: Source; baseline?: Source; bins: number; seed: number }) {
  const [form, choose] = useState("png"), [asked, ask] = useState<object | null>(null), task = useTask<{ files: Record<string, string> }>("take_home", asked);
  return (
    <section><h2>Take home</h2>
      <div class="controls"><fieldset><legend>Figures as</legend>{["png", "svg", "pdf"].map((one) => <label><input type="radio" name="form" value={one} checked={one === form} onChange={() => choose(one)} /><span>{one.toUpperCase()}</span></label>)}</fieldset>
        <button type="button" disabled={task.runs} onClick={() => { if (task.error) task.again(); ask({ source, ...(baseline && { baseline }), n_bins: bins, seed, form }); }}>Make report and figures</button></div>
      {task.runs && <Progress job={task.job} onCancel={() => { task.cancel(); ask(null); }} />}
      {task.error && <Trouble message={task.error} />}
      {task.done && <Files job={task.done.job} files={task.done.answer.files}>{(link) => <p>{link("report.html", "This report as one file")}{["calibration", "test", "baseline"].filter((part) => `${part}.npz` in task.done!.answer.files).map((part) => <>, {link(`${part}.npz`, `${part} samples`)}</>)}.</p>}</Files>}</section>
  );
}

/** This model and another one on the same samples. */
function Models({ source, baseline, onChoose, ...step }: Omit<Step, "onCalibrate"> & { baseline: Source | null; onChoose: (baseline: Source | null) => void }) {
  return baseline ? <Both {...step} source={source} baseline={baseline} onOther={() => onChoose(null)} /> : <Open of={source} source={null} onChoose={onChoose} />;
}

function Both({ source, baseline, bins, seed, onOther }: Omit<Step, "onCalibrate"> & { baseline: Source; onOther: () => void }) {
  const { job, done, error, cancel, again } = useTask<Answer>("evaluate", { source, baseline, n_bins: bins, seed }), [curves, draw] = useState(["baseline", "this"]);
  const other = <p><button type="button" onClick={onOther}>Choose another baseline</button></p>;
  if (error) return <><Trouble message={error} onAgain={again} />{other}</>;
  if (!done) return <Progress job={job} onCancel={cancel} />;
  const { html, charts, lines, notes } = done.answer;
  return (
    <>
      <Rendered html={html} charts={charts}><Overlay title="Curves of both models" views={charts.views} start={charts.n_bins} chosen={curves} onChoose={draw} /></Rendered>
      <Notes notes={notes} />
      {other}
      <TakeHome source={source} baseline={baseline} bins={bins} seed={seed} />
      <Lines lines={lines} />
    </>
  );
}

function Walk({ source, bins, seed, onCalibrate }: Step) {
  const { job, done, error, cancel, again } = useTask<Answer>("evaluate", { source, n_bins: bins, seed });
  if (error) return <Trouble message={error} onAgain={again} />;
  return done ? <Learn answer={done.answer} onCalibrate={onCalibrate} /> : <Progress job={job} onCancel={cancel} />;
}

interface Wanted { low: number; high: number; wrong: boolean; of?: string; predicted?: string; within?: { column: string; value: string } }

/** The samples in a range of confidence, or of the probability of a class, those that contradict it most first. */
function SampleList({ source, wanted, onWant, classes }: { source: Source; wanted: Wanted; onWant: (wanted: Wanted) => void; classes: string[] }) {
  const { low, high, wrong, of, predicted, within } = wanted, claim = of ? `probability${of}` : "confidence";
  const given = { source, low, high, ...(of && { of_class: true }), ...(wrong ? { correct: false } : {}), ...(predicted === undefined ? {} : { predicted: classes.indexOf(predicted) }), ...(within && { within }) };
  const { done, error } = useTask<Samples>("samples", given), answer = done?.answer;
  const which = `${wrong ? "wrong " : ""}samples${predicted === undefined ? "" : ` predicted as ${short(predicted, 60)}`}${within ? ` of ${short(within.column, 60)} = ${short(within.value, 60)}` : ""} with ${claim} above ${share(low)} and up to ${share(high)}`;
  return (
    <>
      <h2>Samples</h2>
      <div class="controls"><Slider label={`${of ? "Probability" : "Confidence"} above`} min={0} max={99} value={Math.round(100 * low)} text={share(low, 0)} onMove={(value) => onWant({ ...wanted, low: value / 100, high: Math.max(high, value / 100 + 0.01) })} />
        <label><input type="checkbox" checked={wrong} onChange={() => onWant({ ...wanted, wrong: !wrong })} /> wrong ones only</label>
        {of && <button type="button" onClick={() => onWant({ low: 0, high: 1, wrong })}>by confidence</button>}
        {predicted !== undefined && <button type="button" onClick={() => onWant({ low, high, wrong })}>all classes</button>}
        {within && <button type="button" onClick={() => onWant({ low, high, wrong })}>all slices</button>}
        {high < 1 && <button type="button" onClick={() => onWant({ ...wanted, high: 1 })}>up to 100 %</button>}</div>
      {error && <Trouble message={error} />}
      {!answer && !error && <p role="status">Looking …</p>}
      {answer && <p class="legend" aria-live="polite">{answer.count ? `${whole(answer.count)} ${which}${answer.count > answer.samples.length ? `; the first ${answer.samples.length} are shown` : ""}.` : `There are no ${which}.`}</p>}
      {answer && answer.count > 0 && (
        <div class="scroll tall" tabIndex={0} role="region" aria-label="Samples"><table><thead><tr><th scope="col">row</th><th scope="col">confidence</th><th scope="col" class="text">true class</th><th scope="col" class="text">predicted, and the next</th></tr></thead>
          <tbody>{answer.samples.map((sample) => <tr key={sample.row}><td>{sample.row}</td><td>{share(sample.confidence, 2)}</td><td class="text" title={sample.label}>{short(sample.label ?? (sample.correct ? "correct" : "wrong"), 40)}</td><td class="text">{sample.top?.map(([name, p]) => `${short(name, 40)} ${share(p)}`).join(", ")}</td></tr>)}</tbody></table></div>)}
    </>
  );
}

/** What methods are fitted on, and compared on. */
function partsOf(split: Source["split"]): string {
  if (!split) return "Cross-validated: every sample is evaluated by a map that was fitted outside its fold. The maps to take home are fitted on all samples. Open has splits.";
  if (split.by === "half") return `Fitted on a random half of the samples (seed ${split.seed}), compared on the other half; Open has other splits.`;
  if (split.by === "column") return `Fitted on the samples with ${short(split.column, 40)} = ${short(split.calibration, 40)}, compared on those with ${short(split.test, 40)}.`;
  return `Fitted on the ${split.by === "file" ? "other file" : "calibration samples"}, compared on ${split.by === "file" ? "this one" : "the others"}.`;
}

function Calibrate({ state, source, go }: { state: State; source: Source; go: (change: Partial<State>) => void }) {
  const { methods, fitted, bins, seed } = state, [known, setKnown] = useState<Record<string, string> | null>(null), [error, setError] = useState("");
  useEffect(() => { run<Record<string, string>>("methods", {}).then(({ answer }) => setKnown(answer), (reason: Error) => setError(reason.message)); }, []);
  const task = useTask<Answer>("compare", fitted && { source, methods: fitted.length ? fitted : null, n_bins: bins, seed });
  const toggle = (name: string) => go({ methods: methods.includes(name) ? methods.filter((one) => one !== name) : [...methods, name] });
  return (
    <>
      <section><h2>Methods</h2>
        <p class="legend">{partsOf(source.split)} Without a choice: those that suit the numbers of samples and classes.</p>
        {error && <Trouble message={error} />}
        {!known && !error && <p role="status">Listing the methods …</p>}
        <div class="choices" role="group" aria-label="Methods">{Object.entries(known ?? {}).map(([name, title]) => <label><input type="checkbox" checked={methods.includes(name)} onChange={() => toggle(name)} /> {title}</label>)}</div>
        <p><button type="button" class="primary" disabled={task.runs} onClick={() => { if (task.error) task.again(); go({ fitted: methods, curves: [] }); }}>Fit and compare</button>{methods.length > 0 && <> <button type="button" onClick={() => go({ methods: [] })}>choose none</button></>}</p></section>
      {task.runs && <Progress job={task.job} onCancel={() => { task.cancel(); go({ fitted: null }); }} />}
      {task.error && <Trouble message={task.error} />}
      {task.done && <Compared job={task.done.job} answer={task.done.answer} curves={state.curves} onCurves={(curves) => go({ curves })} />}
    </>
  );
}

function Compared({ job, answer, curves, onCurves }: { job: string; answer: Answer; curves: string[]; onCurves: (names: string[]) => void }) {
  const { charts, recommended } = answer, files = answer.files ?? {}, views = charts.views, [onnx, setOnnx] = useState<boolean | null>(null), [exported, setExported] = useState<Answer["lines"] | null>(null);
  useEffect(() => { openSession().then((session) => setOnnx(session.onnx), () => undefined); }, []);
  return (
    <>
      <Rendered html={answer.html} charts={charts}><Overlay views={views} start={charts.n_bins} chosen={curves.length ? curves : views.slice(0, 3).map((view) => view.name)} onChoose={onCurves} /></Rendered>
      <Notes notes={answer.notes} />
      <section><h2>Take home</h2>
        <Files job={job} files={files}>{(link) => <>
          <p>Maps, one file each (<code>calibrant apply map.safetensors new.csv</code>), or to run without Calibrant: as an ONNX graph, or as a Python module that needs NumPy alone:</p>
          <ul class="files">{Object.entries(files).filter(([name]) => name.startsWith("map-")).map(([name, title]) => <li key={name}>{link(name, title)}{title === recommended && <span class="badge">recommended</span>}{onnx && [".onnx", ".py"].map((suffix) => <Exported job={job} file={name} title={title} suffix={suffix} onDone={setExported} />)}</li>)}</ul>
          {exported && <Lines lines={exported} title="The same file on the command line and in Python" />}
          {onnx === false && <p class="legend">These files need the package onnx: <code>pip install "calibrant[onnx]"</code>, then start the studio again.</p>}
          <p>{link("report.html", "This report as one file")}, the {files["calibration.npz"] ? <>{link("calibration.npz", "calibration")} and {link("test.npz", "test")} samples</> : link("test.npz", "samples")} as they were used.</p></>}</Files></section>
      <Lines lines={answer.lines} />
    </>
  );
}

/** A map to run without Calibrant, which is written when it is asked for; then the link to it. */
function Exported({ job, file, title, suffix, onDone }: { job: string; file: string; title: string; suffix: string; onDone: (lines: Answer["lines"]) => void }) {
  const [asked, ask] = useState<object | null>(null), task = useTask<{ files: Record<string, string>; lines: Answer["lines"] }>("export", asked), done = task.done, kind = suffix === ".onnx" ? "ONNX" : "NumPy";
  useEffect(() => { if (done) onDone(done.answer.lines); }, [done?.job]);
  if (task.error) return <Trouble message={task.error} onAgain={task.again} />;
  if (!done) return <button type="button" disabled={task.runs} aria-label={`${kind} of ${title}`} onClick={() => ask({ job, file, suffix })}>{task.runs ? "writing …" : kind}</button>;
  return <Files job={done.job} files={done.answer.files}>{(link) => Object.keys(done.answer.files).map((name) => link(name, `${title}${suffix}`))}</Files>;
}
