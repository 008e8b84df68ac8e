// What a report may know beside the record: ceilings, sources of today, reference records. Any part may be
// absent, and the page then says so.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lab/compare.h"
#include "lab/expectation.h"
#include "report/roofline.h"

namespace fathom::report {

struct VariantText {
  std::string id;
  std::string file;  // from the root of the source tree
  std::string text;
  bool is_op = false;  // an op of the engine: nobody's neighbour
};

struct ExperimentText {
  std::string notes;                  // notes.md as it is
  std::vector<VariantText> variants;  // in declared order, those that have a file
};

struct Reference {
  std::string folder;                              // "results/h200"
  std::map<std::string, lab::Provenance> records;  // by experiment
  lab::Comparison comparison;                      // A: the records, B: the run
};

struct ReportContext {
  Roofs roofs;
  // Experiment to the hash of its sources today. A record with another hash is marked stale; experiments that
  // are not listed are not marked.
  std::map<std::string, std::string> source_now;
  std::optional<std::map<std::string, ExperimentText>> texts;  // absent: no source tree was at hand
  std::optional<Reference> reference;
  std::map<std::string, std::string> diagnoses =
      {};  // result id to what limits it, a sentence without a full stop
};

}  // namespace fathom::report
