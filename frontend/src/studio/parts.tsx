/** Small parts that several screens share. */
import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Charts } from "../data";
import { Explorer } from "../explorer";
import { Pick, type Picks } from "../pick";
import { type Answer, type Job, run } from "./client";

export function Trouble({ message }: { message: string }) {
  return <p class="trouble" role="alert">{message}</p>;
}

/** What a job does, how far it is, and a button to end it. */
export function Progress({ job, onCancel }: { job: Job<unknown> | null; onCancel: () => void }) {
  const words = !job || job.status === "waiting" ? "Waiting for a free worker" : job.message || "Working";
  return (
    <div class="progress" role="status">
      <span>{words} …</span>
      <progress max="1" value={job?.share ?? undefined} aria-label={words} />
      <button type="button" onClick={onCancel}>Cancel</button>
    </div>
  );
}

export interface Running<T> { job: Job<unknown> | null; done: { job: string; answer: T } | null; error: string; cancel: () => void }

/** Run a task whenever its arguments change; the previous one is cancelled. */
export function useTask<T>(task: string, given: object | null): Running<T> {
  const [state, set] = useState<Omit<Running<T>, "cancel">>({ job: null, done: null, error: "" }), [abort, setAbort] = useState<AbortController | null>(null);
  const key = JSON.stringify(given);
  useEffect(() => {
    if (!given) return undefined;
    const controller = new AbortController();
    setAbort(controller);
    set({ job: null, done: null, error: "" });
    run<T>(task, given, (job) => { if (!controller.signal.aborted) set({ job, done: null, error: "" }); }, controller.signal).then(
      (done) => { if (!controller.signal.aborted) set({ job: null, done, error: "" }); },
      (reason: Error) => { set({ job: null, done: null, error: reason.message }); },
    );
    return () => controller.abort();
  }, [task, key]);
  return { ...state, cancel: () => abort?.abort() };
}

/** A page that the server has rendered, with its charts: names are escaped there, and the policy forbids other scripts. */
export function Rendered({ html, charts, picks }: { html: string; charts: Charts; picks?: Picks }) {
  const page = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const place = page.current?.querySelector("#calibrant-charts");
    if (!place) return undefined;
    place.replaceChildren();
    place.classList.toggle("has-methods", charts.methods.length > 0);
    render(<Pick.Provider value={picks ?? null}><Explorer charts={charts} /></Pick.Provider>, place);
    return () => render(null, place);
  }, [html, charts]);
  return <div ref={page} dangerouslySetInnerHTML={{ __html: html }} />;
}

export function Lines({ lines }: { lines: Answer["lines"] }) {
  return (
    <details class="lines"><summary>The same on the command line and in Python</summary>
      {Object.entries(lines).map(([name, text]) => <Line key={name} name={name === "cli" ? "Command line" : "Python"} text={text} />)}</details>
  );
}

function Line({ name, text }: { name: string; text: string }) {
  const [copied, setCopied] = useState(false);
  const copy = () => void navigator.clipboard?.writeText(text).then(() => { setCopied(true); setTimeout(() => setCopied(false), 1500); });
  return <div class="line"><h3>{name}</h3><pre tabIndex={0}><code>{text}</code></pre><button type="button" onClick={copy}>{copied ? "Copied" : "Copy"}</button></div>;
}
