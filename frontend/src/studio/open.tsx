/** Choose a file, what its columns are, and how to split its samples. */
import { useEffect, useRef, useState } from "preact/hooks";
import { short, whole } from "../plot";
import { type Chosen, type Column, type FileEntry, forget, type Kind, openSession, type Preview, type Refusal, run, type Session, type Source, type Split, type TEXTS, upload } from "./client";
import { Trouble } from "./parts";

const KINDS: [Kind, string, string][] = [
  ["logits", "logits", "scores before the softmax"],
  ["probs", "probabilities", "of every class"],
  ["top-label", "confidence", "of the predicted class only, and whether it is correct"],
];
const SHOWN = 8;
const LABELS = /label|target|truth|(^|[^a-z])y([^a-z]|$)/i; // names of files of labels

/** Of a baseline, ``of`` is the source that has the same samples; its options are tried on files of the same format. */
export function Open({ of, source, onChoose }: { of?: Source; source: Source | null; onChoose: (source: Source) => void }) {
  const [session, setSession] = useState<Session | null>(null), [error, setError] = useState(""), [busy, setBusy] = useState(""), [over, setOver] = useState(false);
  const [chosen, choose] = useState<Source | null>(source), input = useRef<HTMLInputElement>(null);
  useEffect(() => { openSession().then(setSession, (reason: Error) => setError(reason.message)); }, []);
  const ending = (file?: string) => /[^.]*$/.exec(session?.files.find((entry) => entry.id === file)?.name.toLowerCase() ?? "")![0];
  const begin = (one: Source) => choose(of && ending(of.file) === ending(one.file) ? { ...of, split: undefined, by: undefined, classes: undefined, labels_file: undefined, ...one } : one);
  /** Of two npy files that come together, or one after the other, one is the labels of the other. */
  const take = async (files: File[]) => {
    if (!files.length || !session) return;
    setError("");
    try {
      const entries: FileEntry[] = [];
      for (const file of files) {
        setBusy(`Sending ${file.name} to the studio on this machine …`);
        const entry = await upload(file);
        session.files.push(entry); entries.push(entry);
      }
      const arrays = entries.filter((entry) => entry.name.toLowerCase().endsWith(".npy")), labels = arrays.find((entry) => LABELS.test(entry.name)), scores = arrays.find((entry) => entry !== labels);
      const waiting = session.files.find((entry) => entry.id === chosen?.file && entry.name.toLowerCase().endsWith(".npy"));
      if (scores && labels) begin({ file: scores.id, labels_file: { file: labels.id } });
      else if (labels && waiting && !chosen!.labels_file) choose({ ...chosen!, labels_file: { file: labels.id } });
      else begin({ file: entries[0].id });
    } catch (reason) { setError((reason as Error).message); }
    setBusy("");
  };
  const remove = async (entry: FileEntry) => {
    await forget(entry.id).catch(() => undefined);
    if (session) setSession({ ...session, files: session.files.filter((one) => one.id !== entry.id) });
    if (chosen?.file === entry.id) choose(null);
  };
  return (
    <section>
      <h2>{of ? "Baseline" : "Predictions"}</h2>
      {of && <p class="legend">Predictions of another model for the same samples in the same order: in another file, or in other columns of the same one. Both are evaluated side by side, with what differs beyond noise.</p>}
      <div class={`drop${over ? " over" : ""}`} onDragOver={(event) => { event.preventDefault(); setOver(true); }} onDragLeave={() => setOver(false)}
        onDrop={(event) => { event.preventDefault(); setOver(false); void take([...(event.dataTransfer?.files ?? [])]); }}>
        <p>Drop a file here: csv, tsv, jsonl (also .gz), npz, parquet, feather, arrow, safetensors or pt, with the scores and the true class of every sample; or two npy files, scores and labels.</p>
        <button type="button" disabled={!session || Boolean(busy)} onClick={() => input.current?.click()}>Choose a file</button>
        <input ref={input} type="file" multiple class="hidden" aria-label="File of predictions" tabIndex={-1} onChange={(event) => { void take([...(event.currentTarget.files ?? [])]); event.currentTarget.value = ""; }} />
        <p class="legend">It stays on this machine, and is deleted when the studio ends.{session && ` At most ${whole(Math.round(session.most_bytes / 1e6))} MB.`}</p>
      </div>
      {busy && <p role="status">{busy}</p>}
      {error && <Trouble message={error} />}
      {session && session.files.length > 0 && (
        <><p class="legend">At hand:</p><ul class="files" aria-label="Files at hand">{session.files.map((entry) => (
          <li key={entry.id}><button type="button" aria-pressed={entry.id === chosen?.file} onClick={() => begin({ file: entry.id })}>{entry.name}</button>
            {!entry.example && <button type="button" class="remove" aria-label={`Remove ${entry.name}`} onClick={() => void remove(entry)}>×</button>}</li>))}</ul></>)}
      {chosen && session && <Columns key={`${chosen.file} ${chosen.labels_file?.file}`} of={of} start={chosen} others={session.files.filter((entry) => entry.id !== chosen.file)} onChoose={onChoose} />}
    </section>
  );
}

type Role = "" | "scores" | "positive" | "labels" | "confidence" | "correct" | "weights" | "clusters" | "by" | "split";
const ROLES: Record<Role, string> = { "": "not used", scores: "score", positive: "positive score", labels: "true class", confidence: "confidence", correct: "correct", weights: "weight", clusters: "cluster", by: "slices", split: "split" };

/** What a column is used for: as the reader says, or as the server recognises it. */
function roleOf(name: string, given: Source, chosen: Chosen | null): Role {
  if (given.weights === name) return "weights";
  if (given.clusters === name) return "clusters";
  if (given.by?.includes(name)) return "by";
  if (given.split?.by === "column" && given.split.column === name) return "split";
  const top = (given.kind ?? chosen?.kind) === "top-label";
  if (chosen?.labels === name || given.labels === name || given.correct === name) return top ? "correct" : "labels";
  if (given.positive === name) return "positive";
  return chosen?.scores.includes(name) || (given.scores && listOf(given.scores, [name]).includes(name)) ? (top ? "confidence" : chosen?.positive ? "positive" : "scores") : "";
}

/** The columns in a list with commas; a column whose name has commas is one. */
function listOf(text: string, names: string[]): string[] {
  const parts = text.split(","), most = Math.max(1, ...names.map((name) => name.split(",").length)), listed: string[] = [];
  while (parts.length) {
    const sizes = Array.from({ length: Math.min(most, parts.length) }, (_, i) => i + 1).reverse();
    listed.push(parts.splice(0, sizes.find((size) => names.includes(parts.slice(0, size).join(",").trim())) ?? 1).join(",").trim());
  }
  return listed;
}

/** The options after a column gets another role. */
function withRole(name: string, role: Role, given: Source, preview: Preview): Source {
  const next: Source = { ...given }, before = roleOf(name, given, preview.chosen);
  const listed = given.scores?.includes(",") ? listOf(given.scores, preview.names) : before === "scores" || role === "scores" ? (preview.chosen && !preview.chosen.positive && preview.chosen.kind !== "top-label" ? preview.chosen.scores : given.scores ? [given.scores] : []) : null;
  for (const option of ["weights", "clusters", "labels", "correct", "confidence", "positive"] as const) if (next[option] === name) next[option] = undefined;
  if (next.by) next.by = next.by.filter((one) => one !== name);
  if (next.split?.by === "column" && next.split.column === name) next.split = undefined;
  if (listed && (role === "scores" || before === "scores")) next.scores = [...listed.filter((one) => one !== name), ...(role === "scores" ? [name] : [])].join(",");
  if (role === "scores") next.positive = undefined;
  if (role === "positive") next.scores = undefined;
  if (role === "by") next.by = [...(next.by ?? []), name];
  else if (role === "split") next.split = splitBy(preview, name);
  else if (role && role !== "scores") next[role] = name;
  return next;
}

/** Leave out what is empty, so that equal choices have equal addresses. */
const tidy = (source: Source): Source => Object.fromEntries(Object.entries(source).filter(([, value]) => value && !(Array.isArray(value) && !value.length))) as unknown as Source;

function Columns({ of, start, others, onChoose }: { of?: Source; start: Source; others: FileEntry[]; onChoose: (source: Source) => void }) {
  const [preview, setPreview] = useState<Preview | null>(null), [failed, fail] = useState(""), [refusal, refuse] = useState<Refusal | null>(null), [checking, setChecking] = useState(false), [lacking, setLacking] = useState(0);
  const [given, give] = useState<Source>(start), asked = useRef(0), { split: _, ...read } = given;
  useEffect(() => {
    const number = ++asked.current, current = () => number === asked.current;
    const timer = setTimeout(() => run<Preview>("preview", { source: given }).then(({ answer }) => {
      if (!current()) return;
      setPreview(answer); fail("");
      if (answer.is_split && !given.split) give({ ...given, split: { by: "own" } });
    }, (reason: Error) => { if (current()) fail(reason.message); }), preview ? 250 : 0);
    return () => clearTimeout(timer);
  }, [JSON.stringify(read), given.split?.by === "column" && given.split.column]);
  if (!preview) return failed ? <Trouble message={failed} /> : <p role="status">Reading the file …</p>;
  const { chosen, controls } = preview, kind = given.kind ?? chosen?.kind, top = kind === "top-label", isPair = preview.suffix === ".npy", arrays = others.filter((entry) => entry.name.toLowerCase().endsWith(".npy"));
  const change = (part: Partial<Source>) => { refuse(null); setLacking(0); give(tidy({ ...given, ...part })); };
  const trouble = refusal ?? (preview.error ? { message: preview.error, argument: preview.argument } : null);
  const shownAt = trouble?.argument && trouble.argument in controls && !(["scores", "labels", "positive"].includes(trouble.argument) && top) && !(["confidence", "correct"].includes(trouble.argument) && !top) ? trouble.argument : "";
  /** Where values are missing, how many rows would be left out is asked at once. */
  const submit = async (wanted: Source) => {
    if (!chosen || checking) return;
    setChecking(true); refuse(null); setLacking(0); give(wanted);
    try { await run("check", of ? { source: of, baseline: wanted } : { source: wanted }); onChoose(wanted); } catch (reason) {
      const { argument } = reason as Refusal;
      if (!wanted.missing && (argument === "missing" || argument === "weights" || argument === "clusters")) await run<{ dropped: number }>("check", { source: { ...wanted, missing: "drop" } }).then(({ answer }) => setLacking(answer.dropped), () => undefined);
      refuse(reason as Refusal);
    }
    setChecking(false);
  };
  const { suggested } = preview, listed = suggested?.scores.join(","), used = given.scores === listed;
  /** The focus goes to the scores, where Enter evaluates: the button goes away. */
  const use = (event: Event) => {
    change({ kind: suggested!.kind, scores: listed, labels: suggested!.labels ?? undefined });
    (event.currentTarget as HTMLButtonElement).form!.querySelector<HTMLInputElement>("input[list]")?.focus();
  };
  const said = trouble && <Trouble message={trouble.message}>{suggested && !refusal && <> <button type="button" disabled={used} onClick={use}>{used ? "Reading …" : "Use these columns"}</button></>}{lacking > 0 && <> <button type="button" onClick={() => void submit({ ...given, missing: "drop" })}>Leave out {whole(lacking)} {lacking > 1 ? "rows" : "row"} without values</button></>}</Trouble>;
  const at = (control: string) => control === shownAt && said;
  const text = (name: (typeof TEXTS)[number], hint: string, list?: string) => (
    <div class="field"><label>{controls[name]}<input list={list} value={given[name] ?? ""} placeholder={hint} aria-invalid={name === shownAt} onInput={(event) => change({ [name]: event.currentTarget.value })} /></label>{at(name)}</div>);
  const column = (name: "positive" | "weights" | "clusters", none: string) => (
    <div class="field"><label>{controls[name]}<select value={given[name] ?? ""} aria-invalid={name === shownAt} onChange={(event) => change({ [name]: event.currentTarget.value, ...(name === "positive" && { scores: undefined }) })}>
      <option value="">{none}</option>{preview.names.slice(0, 500).map((one) => <option>{one}</option>)}</select></label>{at(name)}</div>);
  const roles: Role[] = top ? ["", "confidence", "correct", "weights", "clusters"] : ["", "scores", "positive", "labels", "weights", "clusters"];
  if (!of) roles.push("by", "split");
  return (
    <form onSubmit={(event) => { event.preventDefault(); void submit(given); }}>
      <h2>{preview.name}</h2>
      {failed && <Trouble message={failed} />}
      {preview.columns.length > 0 && <div class="scroll" tabIndex={0} role="region" aria-label="First rows of the file">
        <table class="preview"><thead><tr>{preview.columns.map((one) => { const role = roleOf(one.name, given, chosen); return (
          <th scope="col">{one.name}<br /><small>{one.error ? "cannot be read" : `${one.type} ${one.shape?.map(whole).join(" × ")}`}</small>
            {!preview.is_split && !isPair && <select class={role && "used"} value={role} aria-label={`Use of ${one.name}`} onChange={(event) => change(withRole(one.name, event.currentTarget.value as Role, given, preview))}>{roles.filter((other) => other !== "split" || role === "split" || splitBy(preview, one.name)).map((other) => <option value={other}>{ROLES[other]}</option>)}</select>}</th>); })}</tr></thead>
          <tbody>{[0, 1, 2, 3, 4].map((row) => <tr>{preview.columns.map((one) => <td>{cell(one.first?.[row])}</td>)}</tr>)}</tbody></table>
      </div>}
      {preview.names.length > preview.columns.length && <p class="legend">{preview.columns.length} of {whole(preview.names.length)} {preview.noun}s.{chosen && ` Scores: ${short(chosen.scores[0], 40)}${chosen.scores.length > 1 ? ` … ${short(chosen.scores.at(-1)!, 40)} (${whole(chosen.scores.length)})` : ""}; ${top ? "correct" : "true class"}: ${short(chosen.labels ?? "", 40)}.`}</p>}
      {!preview.is_split && <>
        <fieldset class="stacked"><legend>{controls.kind}</legend>{KINDS.map(([value, title, words]) => (
          <label><input type="radio" name="kind" value={value} checked={kind === value} onChange={() => change({ kind: value, percent: value === "logits" ? undefined : given.percent, scores: top !== (value === "top-label") ? undefined : given.scores, labels: top !== (value === "top-label") ? undefined : given.labels, confidence: undefined, correct: undefined, positive: value === "top-label" ? undefined : given.positive })} /><span>{title} <small>{words}</small></span></label>))}</fieldset>
        {at("kind")}
        <div class="fields">
          {top ? <>{text("confidence", chosen?.scores[0] ?? "required", "names")}{text("correct", chosen?.labels ?? "required", "names")}</>
            : <>{!isPair && text("scores", chosen && !chosen.positive ? (chosen.scores.length > 3 ? `${chosen.scores[0]}:${chosen.scores.at(-1)}` : chosen.scores.join(",")) : "a,b,c or first:last or prob_*", "names")}
              {isPair ? <div class="field"><label>{controls.labels}<select value={given.labels_file?.file ?? ""} aria-invalid={shownAt === "labels"} onChange={(event) => change({ labels_file: event.currentTarget.value ? { file: event.currentTarget.value } : undefined })}><option value="">{arrays.length ? "choose the file of the labels" : "drop the file of the labels too"}</option>{arrays.map((entry) => <option value={entry.id}>{entry.name}</option>)}</select></label>{at("labels")}{at("scores")}</div>
                : text("labels", chosen?.labels ?? "required", "names")}
              {!isPair && column("positive", "no: a score for every class")}
              {given.positive && text("positive_class", "label, unless 0/1 or true/false")}</>}
          {!isPair && column("weights", "none: all samples count alike")}
          {!isPair && column("clusters", "none: samples are independent")}
        </div>
        <datalist id="names">{preview.names.slice(0, 500).map((name) => <option value={name} />)}</datalist>
        <details open={["class_names", "normalise", "percent", "separator", "missing"].includes(shownAt) || Boolean(given.missing || given.percent) || undefined}><summary class="small">More about the file</summary>
          <div class="fields">
            {!top && text("class_names", "cat,dog,… in the order of the scores")}
            {/csv|tsv|gz/.test(preview.suffix) && text("separator", "comma; ; or | or tab or csv2")}
            {!top && kind !== "logits" && <div class="field"><label class="check"><input type="checkbox" checked={Boolean(given.normalise)} onChange={() => change({ normalise: !given.normalise })} /> {controls.normalise} <small>counts, rounded numbers</small></label>{at("normalise")}</div>}
            {kind !== "logits" && <div class="field"><label class="check"><input type="checkbox" checked={Boolean(given.percent)} onChange={() => change({ percent: !given.percent })} /> {controls.percent} <small>from 0 to 100, with or without a % sign</small></label>{at("percent")}</div>}
            <div class="field"><label class="check"><input type="checkbox" checked={Boolean(given.missing)} onChange={() => change({ missing: given.missing ? undefined : "drop" })} /> {controls.missing} <small>null, NaN, empty fields</small></label>{at("missing")}</div>
          </div></details></>}
      {!of && <div class="fields">
        {!preview.is_split && !isPair && <div class="field"><label>{controls.by}<select value="" onChange={(event) => { if (event.currentTarget.value) change({ by: [...(given.by ?? []), event.currentTarget.value] }); }}><option value="">add a column, such as a region</option>{preview.names.slice(0, 500).filter((name) => !given.by?.includes(name) && !chosen?.scores.includes(name)).map((name) => <option>{name}</option>)}</select></label>
          {given.by && <ul class="files" aria-label={controls.by}>{given.by.map((name) => <li key={name}><button type="button" aria-label={`No slices by ${name}`} onClick={() => change({ by: given.by!.filter((one) => one !== name) })}>{name} ×</button></li>)}</ul>}{at("by")}</div>}
        {!top && <div class="field"><label class="check"><input type="checkbox" checked={Boolean(given.classes)} onChange={() => change({ classes: !given.classes })} /> {controls.classes}</label>{at("classes")}</div>}
      </div>}
      {of ? null : preview.is_split ? <p class="legend">This example has calibration samples of its own; those shown are the test samples.</p> : <SplitChoice preview={preview} others={others} split={given.split} onChange={(split) => change({ split })} />}
      {at("split")}
      {!shownAt && said}
      <p><button type="submit" class="primary" disabled={!chosen || checking}>{checking ? "Reading …" : of ? "Compare" : "Evaluate"}</button></p>
    </form>
  );
}

function cell(value: unknown): string {
  const text = (one: unknown) => (typeof one === "number" && !Number.isInteger(one) ? one.toPrecision(4) : String(one));
  return value === undefined ? "" : Array.isArray(value) ? value.slice(0, 3).map(text).join(", ") + (value.length > 3 ? ", …" : "") : text(value);
}

const divides = (column: Column): boolean => (column.values?.length ?? 0) > 1 && column.values!.length <= SHOWN;
const CALIBRATION = /^(cal|calib|calibration|val|valid|validation|dev)$/i;

/** A split by a column; its values are those that are called so, else the first two. */
function splitBy(preview: Preview, name: string): Split | undefined {
  const column = preview.columns.find((one) => one.name === name);
  if (!column || !divides(column)) return undefined;
  const values = column.values!.map(String), calibration = values.find((value) => CALIBRATION.test(value)) ?? values.find((value) => value !== "test")!;
  return { by: "column", column: name, calibration, test: values.find((value) => value === "test") ?? values.find((value) => value !== calibration)! };
}

function SplitChoice({ preview, others, split, onChange }: { preview: Preview; others: FileEntry[]; split?: Split; onChange: (split?: Split) => void }) {
  const parts = preview.columns.filter(divides);
  const values = (name: string) => parts.find((column) => column.name === name)?.values?.map(String) ?? [];
  return (
    <>
      <fieldset class="stacked"><legend>Samples to calibrate on <small>which are not used for testing</small></legend>
        <label><input type="radio" name="split" checked={!split} onChange={() => onChange(undefined)} /><span>all samples <small>calibrate by cross-validation</small></span></label>
        <label><input type="radio" name="split" checked={split?.by === "half"} onChange={() => onChange({ by: "half", seed: 0 })} /><span>a random half <small>the other half is tested</small></span></label>
        {parts.length > 0 && <label><input type="radio" name="split" checked={split?.by === "column"} onChange={() => onChange(splitBy(preview, (parts.find((column) => column.values!.includes("test")) ?? parts[0]).name))} /><span>by a column</span></label>}
        {others.length > 0 && <label><input type="radio" name="split" checked={split?.by === "file"} onChange={() => onChange({ by: "file", source: { file: others[0].id } })} /><span>another file <small>all of this one is tested</small></span></label>}</fieldset>
      <div class="fields">
        {split?.by === "half" && <label>Random seed <input type="number" min="0" value={split.seed} onInput={(event) => onChange({ by: "half", seed: Number(event.currentTarget.value) || 0 })} /></label>}
        {split?.by === "column" && (<>
          <label>Column <select value={split.column} onChange={(event) => onChange(splitBy(preview, event.currentTarget.value))}>{parts.map((column) => <option>{column.name}</option>)}</select></label>
          {(["calibration", "test"] as const).map((part) => <label>{part === "calibration" ? "Calibrate on" : "Test on"} <select value={split[part]} onChange={(event) => onChange({ ...split, [part]: event.currentTarget.value })}>{values(split.column).map((value) => <option>{value}</option>)}</select></label>)}</>)}
        {split?.by === "file" && <label>Calibrate on <select value={split.source.file} onChange={(event) => onChange({ by: "file", source: { file: event.currentTarget.value } })}>{others.map((entry) => <option value={entry.id}>{entry.name}</option>)}</select></label>}
      </div>
    </>
  );
}
