/** Requests to the studio's server. Every answer is JSON; an error has a message for the reader. */
import type { Charts } from "../data";

export interface FileEntry { id: string; name: string; example?: boolean }
export interface Session { token: string; version: string; files: FileEntry[]; clamped: FileEntry[]; most_bytes: number; onnx: boolean }
export interface Column { name: string; shape?: number[]; type?: string; first?: unknown[]; values?: unknown[]; error?: string }
export type Kind = "logits" | "probs" | "top-label";
export interface Chosen { kind: Kind; scores: string[]; labels: string | null; positive: boolean }
/** What a file holds, and what would be read with the options given, or the error and the control it is about. */
export interface Preview { name: string; is_split: boolean; suffix: string; names: string[]; noun: string; columns: Column[]; controls: Record<string, string>; chosen: Chosen | null; suggested: Chosen | null; error: string; argument: string | null }
export type Split = { by: "own" } | { by: "half"; seed: number } | { by: "column"; column: string; calibration: string; test: string } | { by: "file"; source: Source };
/** Options of reading that are text, as the command line has them. */
export const TEXTS = ["scores", "labels", "confidence", "correct", "positive", "positive_class", "class_names", "separator", "weights", "clusters", "missing"] as const;
export interface Source extends Partial<Record<(typeof TEXTS)[number], string>> { file: string; kind?: Kind; normalise?: boolean; percent?: boolean; classes?: boolean; by?: string[]; labels_file?: { file: string }; split?: Split }
export interface Answer {
  html: string; charts: Charts; document: { n: number; metrics: Record<string, { value: number; low: number | null; high: number | null; floor?: number; p?: number }>; risk: { auroc: { value: number | null } } | null }; notes: string[]; lines: { cli: string; python: string };
  n: { calibration: number | null; test: number }; files?: Record<string, string>; recommended?: string;
}
export interface Sample { row: number; confidence: number; correct: boolean; label?: string; top?: [string, number][] }
export interface Samples { count: number; correct: number; samples: Sample[] }
export interface Job<T> { id: string; status: "waiting" | "running" | "done" | "failed" | "cancelled"; message: string; share: number | null; error: string; argument: string | null; answer: T | null }
export type OnProgress = (job: Job<unknown>) => void;

let session: Promise<Session> | null = null;
export const openSession = (): Promise<Session> => (session ??= ask<Session>("/api/session"));

async function ask<T>(path: string, options: RequestInit = {}): Promise<T> {
  let answer: Response;
  try { answer = await fetch(path, options); } catch { throw new Error("The studio does not answer. Is calibrant serve still running?"); }
  const body = (await answer.json().catch(() => ({ error: `The studio answered ${answer.status}.` }))) as T & { error?: string };
  if (!answer.ok) throw new Error(body.error);
  return body;
}

async function write<T>(path: string, method: string, body?: BodyInit): Promise<T> {
  const { token } = await openSession();
  return ask<T>(path, { method, body, headers: { "x-calibrant-token": token } });
}

export async function upload(file: File): Promise<FileEntry> {
  const { most_bytes } = await openSession();
  if (file.size > most_bytes) throw new Error(`${file.name} has ${file.size.toLocaleString("en-US")} bytes; at most ${most_bytes.toLocaleString("en-US")} are taken. Start calibrant serve with --max-upload.`);
  return write<FileEntry>(`/api/files?name=${encodeURIComponent(file.name)}`, "POST", file);
}

export const forget = (id: string): Promise<unknown> => write(`/api/files/${id}`, "DELETE");

/** An error with the control that it is about. */
export class Refusal extends Error { constructor(message: string, readonly argument: string | null) { super(message); } }

/** Run a task to its end. Aborting the signal cancels it on the server. */
export async function run<T>(task: string, given: object, onProgress?: OnProgress, signal?: AbortSignal): Promise<{ job: string; answer: T }> {
  let job = await write<Job<T>>("/api/jobs", "POST", JSON.stringify({ task, arguments: given }));
  const cancel = () => void write(`/api/jobs/${job.id}`, "DELETE").catch(() => undefined);
  signal?.addEventListener("abort", cancel, { once: true });
  while (job.status === "waiting" || job.status === "running") {
    onProgress?.(job);
    job = await ask<Job<T>>(`/api/jobs/${job.id}?wait=${onProgress ? 0.4 : 10}`);
  }
  signal?.removeEventListener("abort", cancel);
  if (job.status !== "done") throw new Refusal(job.status === "cancelled" ? "Cancelled." : job.error, job.argument);
  return { job: job.id, answer: job.answer as T };
}
