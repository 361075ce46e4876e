#include "cli/version.h"

#include <vector>

#include "situ/version.h"

namespace situ::cli {
namespace {

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

}  // namespace

std::string version_lines() {
  const BuildFacts facts = build_facts();
  return std::string("situ ") + version() + "\ncommit: " + kCommit + "\ncompiler: " + facts.compiler +
         "\nisa: " + facts.isa + " (this CPU runs " + joined(facts.isas) + ")\nfeatures: " + joined(facts.features) +
         "\n";
}

}  // namespace situ::cli
