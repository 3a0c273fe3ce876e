/** Choose a file, what its columns are, and how to split its samples. */
import { useEffect, useRef, useState } from "preact/hooks";
import { whole } from "../plot";
import { type FileEntry, forget, type Kind, openSession, type Preview, run, type Session, type Source, type Split, upload } from "./client";
import { Trouble } from "./parts";

const KINDS: [Kind, string, string][] = [
  ["logits", "logits", "scores before the softmax"],
  ["probs", "probabilities", "of every class"],
  ["top-label", "confidence", "of the predicted class only, and whether it is correct"],
];
const SHOWN = 8;

export function Open({ source, onChoose }: { source: Source | null; onChoose: (source: Source) => void }) {
  const [session, setSession] = useState<Session | null>(null), [error, setError] = useState(""), [busy, setBusy] = useState(""), [over, setOver] = useState(false);
  const [chosen, choose] = useState<string | null>(source?.file ?? null), input = useRef<HTMLInputElement>(null);
  useEffect(() => { openSession().then(setSession, (reason: Error) => setError(reason.message)); }, []);
  const take = async (file: File | undefined) => {
    if (!file || !session) return;
    setError(""); setBusy(`Sending ${file.name} to the studio on this machine …`);
    try { const entry = await upload(file); session.files.push(entry); choose(entry.id); } catch (reason) { setError((reason as Error).message); }
    setBusy("");
  };
  const remove = async (entry: FileEntry) => {
    await forget(entry.id).catch(() => undefined);
    if (session) setSession({ ...session, files: session.files.filter((one) => one.id !== entry.id) });
    if (chosen === entry.id) choose(null);
  };
  return (
    <section>
      <h2>Predictions</h2>
      <div class={`drop${over ? " over" : ""}`} onDragOver={(event) => { event.preventDefault(); setOver(true); }} onDragLeave={() => setOver(false)}
        onDrop={(event) => { event.preventDefault(); setOver(false); void take(event.dataTransfer?.files[0]); }}>
        <p>Drop a file here: csv, tsv, jsonl, npz, parquet, feather, arrow, safetensors or pt, with the scores and the true class of every sample.</p>
        <button type="button" disabled={!session || Boolean(busy)} onClick={() => input.current?.click()}>Choose a file</button>
        <input ref={input} type="file" class="hidden" aria-label="File of predictions" tabIndex={-1} onChange={(event) => { void take(event.currentTarget.files?.[0]); event.currentTarget.value = ""; }} />
        <p class="legend">It stays on this machine, and is deleted when the studio ends.{session && ` At most ${whole(Math.round(session.most_bytes / 1e6))} MB.`}</p>
      </div>
      {busy && <p role="status">{busy}</p>}
      {error && <Trouble message={error} />}
      {session && session.files.length > 0 && (
        <><p class="legend">At hand:</p><ul class="files" aria-label="Files at hand">{session.files.map((entry) => (
          <li key={entry.id}><button type="button" aria-pressed={entry.id === chosen} onClick={() => choose(entry.id)}>{entry.name}</button>
            {!entry.example && <button type="button" class="remove" aria-label={`Remove ${entry.name}`} onClick={() => void remove(entry)}>×</button>}</li>))}</ul></>)}
      {chosen && session && <Columns key={chosen} file={chosen} source={source?.file === chosen ? source : null} others={session.files.filter((entry) => entry.id !== chosen)} onChoose={onChoose} />}
    </section>
  );
}

function Columns({ file, source, others, onChoose }: { file: string; source: Source | null; others: FileEntry[]; onChoose: (source: Source) => void }) {
  const [preview, setPreview] = useState<Preview | null>(null), [error, setError] = useState("");
  const [given, give] = useState<Source>(source ?? { file });
  useEffect(() => {
    run<Preview>("preview", { source: { file } }).then(({ answer }) => {
      setPreview(answer);
      if (!given.kind && answer.recognised) give({ ...given, kind: answer.recognised, ...(answer.is_split && { split: { by: "own" } as Split }) });
    }, (reason: Error) => setError(reason.message));
  }, [file]);
  if (error) return <Trouble message={error} />;
  if (!preview) return <p role="status">Reading the file …</p>;
  const kind = given.kind, found = kind && preview.kinds[kind], named = kind === "top-label" ? (["confidence", "correct"] as const) : (["scores", "labels"] as const);
  const change = (part: Partial<Source>) => give(Object.fromEntries(Object.entries({ ...given, ...part }).filter(([, value]) => value)) as unknown as Source);
  const complete = kind && (!found?.error || named.every((name) => given[name]));
  return (
    <form onSubmit={(event) => { event.preventDefault(); if (complete) onChoose(given); }}>
      <h2>{preview.name}</h2>
      <div class="scroll" tabIndex={0} role="region" aria-label="First rows of the file">
        <table><thead><tr>{preview.columns.map((column) => <th scope="col">{column.name}<br /><small>{column.error ? "cannot be read" : `${column.type} ${column.shape?.map(whole).join(" × ")}`}</small></th>)}</tr></thead>
          <tbody>{[0, 1, 2, 3, 4].map((row) => <tr>{preview.columns.map((column) => <td>{cell(column.first?.[row])}</td>)}</tr>)}</tbody></table>
      </div>
      {preview.names.length > preview.columns.length && <p class="legend">The first {preview.columns.length} of {whole(preview.names.length)} {preview.noun}s.</p>}
      {!preview.is_split && <fieldset class="stacked"><legend>The scores are</legend>{KINDS.map(([value, title, words]) => (
        <label><input type="radio" name="kind" value={value} checked={kind === value} onChange={() => change({ kind: value, scores: undefined, labels: undefined, confidence: undefined, correct: undefined })} /><span>{title} <small>{words}</small></span></label>))}</fieldset>}
      {kind && !preview.is_split && (
        <div class="fields">{named.map((name) => (
          <label>{name === "scores" ? "Scores: column, array or the start of their names" : name[0].toUpperCase() + name.slice(1)}
            <input list="names" value={given[name] ?? ""} placeholder={found?.error ? "required" : name === "labels" || name === "correct" ? found?.labels ?? "" : (found?.scores ?? []).slice(0, 3).join(", ")} onInput={(event) => change({ [name]: event.currentTarget.value })} /></label>))}
          <datalist id="names">{preview.names.slice(0, 500).map((name) => <option value={name} />)}</datalist>
        </div>)}
      {found?.error && <p class="legend">{found.error}</p>}
      {preview.is_split ? <p class="legend">This example has calibration samples of its own; those shown are the test samples.</p> : <SplitChoice preview={preview} others={others} split={given.split} onChange={(split) => change({ split })} />}
      <p><button type="submit" class="primary" disabled={!complete}>Evaluate</button></p>
    </form>
  );
}

function cell(value: unknown): string {
  const text = (one: unknown) => (typeof one === "number" && !Number.isInteger(one) ? one.toPrecision(4) : String(one));
  return value === undefined ? "" : Array.isArray(value) ? value.slice(0, 3).map(text).join(", ") + (value.length > 3 ? ", …" : "") : text(value);
}

function SplitChoice({ preview, others, split, onChange }: { preview: Preview; others: FileEntry[]; split?: Split; onChange: (split?: Split) => void }) {
  const parts = preview.columns.filter((column) => (column.values?.length ?? 0) > 1 && column.values!.length <= SHOWN);
  const values = (name: string) => parts.find((column) => column.name === name)?.values?.map(String) ?? [];
  return (
    <>
      <fieldset class="stacked"><legend>To calibrate, samples are needed that are not used for testing</legend>
        <label><input type="radio" name="split" checked={!split} onChange={() => onChange(undefined)} /><span>evaluate all samples <small>calibrate later</small></span></label>
        <label><input type="radio" name="split" checked={split?.by === "half"} onChange={() => onChange({ by: "half", seed: 0 })} /><span>a random half <small>the other half is tested</small></span></label>
        {parts.length > 0 && <label><input type="radio" name="split" checked={split?.by === "column"} onChange={() => { const [a, b] = values(parts[0].name); onChange({ by: "column", column: parts[0].name, calibration: a, test: b }); }} /><span>by a column</span></label>}
        {others.length > 0 && <label><input type="radio" name="split" checked={split?.by === "file"} onChange={() => onChange({ by: "file", source: { file: others[0].id } })} /><span>another file <small>all of this one is tested</small></span></label>}</fieldset>
      <div class="fields">
        {split?.by === "half" && <label>Random seed <input type="number" min="0" value={split.seed} onInput={(event) => onChange({ by: "half", seed: Number(event.currentTarget.value) || 0 })} /></label>}
        {split?.by === "column" && (<>
          <label>Column <select value={split.column} onChange={(event) => { const column = event.currentTarget.value, [a, b] = values(column); onChange({ by: "column", column, calibration: a, test: b }); }}>{parts.map((column) => <option>{column.name}</option>)}</select></label>
          {(["calibration", "test"] as const).map((part) => <label>{part === "calibration" ? "Calibrate on" : "Test on"} <select value={split[part]} onChange={(event) => onChange({ ...split, [part]: event.currentTarget.value })}>{values(split.column).map((value) => <option>{value}</option>)}</select></label>)}</>)}
        {split?.by === "file" && <label>Calibrate on <select value={split.source.file} onChange={(event) => onChange({ by: "file", source: { file: event.currentTarget.value } })}>{others.map((entry) => <option value={entry.id}>{entry.name}</option>)}</select></label>}
      </div>
    </>
  );
}
