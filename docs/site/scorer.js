// Where a search finds pages equally good, guides come before the API reference and the decisions. The
// numbers are Sphinx's own.
var Scorer = {
  score: ([page, title, anchor, text, score]) => score - (/^(api|decisions|files)\//.test(page) ? 0.5 : 0),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: {0: 15, 1: 5, 2: -5},
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
