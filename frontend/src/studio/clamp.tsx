/** Neural Clamping: of the digits network, and of a folder that calibrant clamp has written. */
import { useEffect, useState } from "preact/hooks";
import { type Chosen, ClampingCharts } from "../clamping";
import type { Clamping } from "../data";
import { type Answer, type FileEntry, openSession } from "./client";
import { Files, Lines, Progress, Trouble, useTask } from "./parts";

interface Clamped extends Clamping { verdict: { headline: string; tone: string }; notes: string[]; files: Record<string, string>; lines: Answer["lines"] }
const DIGITS = "digits";

/** Without a choice the first folder is shown, or, if there is none, the digits. */
export function Clamp({ bins, seed, network, onChoose, ...chosen }: { bins: number; seed: number; network: string } & Omit<Chosen, "onChoose"> & { onChoose: (chosen: { sample?: number; part?: Chosen["part"]; network?: string }) => void }) {
  const [folders, setFolders] = useState<FileEntry[] | null>(null), [trouble, setTrouble] = useState("");
  useEffect(() => { openSession().then(({ clamped }) => setFolders(clamped), (reason: Error) => setTrouble(reason.message)); }, []);
  const now = network || folders?.[0]?.id || DIGITS, isDigits = now === DIGITS;
  const task = useTask<Clamped>(isDigits ? "clamp" : "clamped", folders && (isDigits ? { n_bins: bins, seed } : { source: { file: now } })), error = trouble || task.error;
  return (
    <section>
      <h2>Neural Clamping</h2>
      <p class="legend">Calibrates a network from both ends and leaves its weights alone. <b>δ</b> is one small input of its own that is added to every input. <b>T</b>, the temperature, is one number that all scores of the network are divided by. {isDigits && "Here both are fitted to a small network that has learned 100 hand-written digits by heart, and is too sure of others."}</p>
      {folders && folders.length > 0
        ? <fieldset class="views"><legend>Network</legend>{[...folders, { id: DIGITS, name: "digits (example)" }].map(({ id, name }) => <label><input type="radio" name="network" checked={id === now} onChange={() => onChoose({ network: id, sample: 0 })} /><span>{name}</span></label>)}</fieldset>
        : folders && <p class="legend">For a network of your own: <code>calibrant clamp … -o clamped</code>, then <code>calibrant serve clamped/</code>.</p>}
      {error && <Trouble message={error} onAgain={task.error ? task.again : undefined} />}
      {task.runs && <><Progress job={task.job} onCancel={task.cancel} />{isDigits && <p class="legend">Training and fitting take about half a minute, once for as long as the studio runs.</p>}</>}
      {task.done && <Result {...chosen} onChoose={onChoose} job={task.done.job} answer={task.done.answer} isDigits={isDigits} />}
    </section>
  );
}

function Result({ job, answer, isDigits, ...chosen }: Chosen & { job: string; answer: Clamped; isDigits: boolean }) {
  return (
    <>
      <div class={`verdict ${answer.verdict.tone}`}><p class="headline">{answer.verdict.headline}</p></div>
      <ClampingCharts clamping={answer} {...chosen} />
      {!isDigits && <p class="legend">As calibrant clamp has recorded it, for {answer.samples.length} test samples. The network itself is not in the folder: other samples cannot be shown here. The predictions before and after, of all test samples, are among the files under Open.</p>}
      {answer.notes.map((note) => <p class="legend">{note}</p>)}
      {isDigits && <><h2>Take home</h2>
        <Files job={job} files={answer.files}>{(link) => <p>{link("clamped.safetensors", "The clamped network")} with its weights (<code>load_clamped("clamped.safetensors", DigitsCNN())</code>), {link("report.html", "the report")} of <code>calibrant clamp</code>.</p>}</Files></>}
      <Lines lines={answer.lines} />
    </>
  );
}
