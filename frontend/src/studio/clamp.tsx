/** Neural Clamping of a small network: what δ and T do to its inputs and probabilities, together and apart. */
import { type Chosen, ClampingCharts } from "../clamping";
import type { Clamping } from "../data";
import type { Answer } from "./client";
import { Lines, Progress, Trouble, useTask } from "./parts";

interface Clamped extends Clamping { verdict: { headline: string; tone: string }; notes: string[]; files: Record<string, string>; lines: Answer["lines"] }

export function Clamp({ bins, seed, ...chosen }: { bins: number; seed: number } & Chosen) {
  const { job, done, error, cancel, again } = useTask<Clamped>("clamp", { n_bins: bins, seed });
  return (
    <section class="clamp">
      <h2>Neural Clamping</h2>
      <p class="legend">Calibrates a network from both ends and leaves its weights alone. <b>δ</b> is one small picture that is added to every input. <b>T</b>, the temperature, is one number that all scores of the network are divided by. Here both are fitted to a small network that has learned 100 hand-written digits by heart, and is too sure of others.</p>
      {error && <Trouble message={error} onAgain={again} />}
      {!done && !error && <><Progress job={job} onCancel={cancel} /><p class="legend">Training and fitting take about half a minute, once for as long as the studio runs.</p></>}
      {done && <Result {...chosen} job={done.job} answer={done.answer} />}
    </section>
  );
}

function Result({ job, answer, ...chosen }: Chosen & { job: string; answer: Clamped }) {
  const link = (name: string, title: string) => <a href={`/api/jobs/${job}/files/${name}`} download>{title}</a>;
  return (
    <>
      <div class={`verdict ${answer.verdict.tone}`}><p class="headline">{answer.verdict.headline}</p></div>
      <ClampingCharts clamping={answer} {...chosen} />
      {answer.notes.map((note) => <p class="legend">{note}</p>)}
      <h2>Take home</h2>
      <p>{link("clamped.safetensors", "The clamped network")} with its weights (<code>load_clamped("clamped.safetensors", DigitsCNN())</code>), {link("report.html", "the report")} of <code>calibrant clamp</code>.</p>
      <Lines lines={answer.lines} />
    </>
  );
}
