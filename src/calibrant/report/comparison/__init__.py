"""Methods side by side: fitted on one set of predictions, judged on another: numbers, words, renderings."""
