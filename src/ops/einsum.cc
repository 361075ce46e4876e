// ai.onnx.Einsum: products of operands, summed over the letters that the result lacks. It has no kernel:
// passes/expand/expand_fused.cc writes it out.
#include "ops/einsum.h"

#include <algorithm>
#include <map>

#include "ops/infer.h"
#include "ops/ops.h"

namespace situ {
namespace {

std::string letters_of(const std::string& term, size_t rank, size_t dots) {
  std::string letters;
  const size_t named = static_cast<size_t>(std::count_if(term.begin(), term.end(), [](char c) { return c != '.'; }));
  for (size_t i = 0; i < term.size(); ++i) {
    if (term[i] != '.') {
      letters += term[i];
      continue;
    }
    i += 2;
    // Of operands with fewer axes there the last ones.
    const size_t own = rank > named ? rank - named : 0;
    for (size_t d = dots - std::min(dots, own); d < dots; ++d) letters += static_cast<char>('0' + d);
  }
  return letters;
}

}  // namespace

Result<EinsumTerms> einsum_terms(const std::string& equation, const std::vector<size_t>& ranks) {
  const auto wrong = [&](const std::string& why) { return Status::error("equation '" + equation + "' " + why); };
  std::string text;
  for (const char c : equation)
    if (c != ' ') text += c;
  const size_t arrow = text.find("->");
  const bool explicit_result = arrow != std::string::npos;
  std::string left = text.substr(0, arrow), right = explicit_result ? text.substr(arrow + 2) : "";
  std::vector<std::string> terms{""};
  for (const char c : left)
    if (c == ',')
      terms.emplace_back();
    else
      terms.back() += c;
  if (terms.size() != ranks.size())
    return wrong("has " + std::to_string(terms.size()) + " operands, and " + std::to_string(ranks.size()) +
                 " are given");
  const auto check = [](const std::string& term) {
    const size_t dots = term.find("...");
    std::string rest = dots == std::string::npos ? term : std::string(term).erase(dots, 3);
    return std::all_of(rest.begin(), rest.end(),
                       [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); });
  };
  if (!check(right) || !std::all_of(terms.begin(), terms.end(), check)) return wrong("cannot be read");
  size_t dots = 0;  // axes that "..." stands for
  for (size_t i = 0; i < terms.size(); ++i)
    if (terms[i].find('.') != std::string::npos && ranks[i] + 3 > terms[i].size())
      dots = std::max(dots, ranks[i] + 3 - terms[i].size());
  if (dots > 9) return wrong("has too many axes");
  EinsumTerms all;
  std::map<char, int> count;
  for (size_t i = 0; i < terms.size(); ++i) {
    all.operands.push_back(letters_of(terms[i], ranks[i], dots));
    const std::string& letters = all.operands.back();
    if (letters.size() != ranks[i])
      return wrong("has " + std::to_string(letters.size()) + " axes for operand " + std::to_string(i) + " of " +
                   std::to_string(ranks[i]));
    for (const char c : letters) {
      ++count[c];
      if (std::count(letters.begin(), letters.end(), c) > 1)
        return wrong(std::string("has '") + c + "' twice in an operand: diagonals are not supported");
    }
  }
  if (explicit_result) {
    all.result = letters_of(right, dots + right.size(), dots);
  } else {
    for (size_t d = 0; d < dots; ++d) all.result += static_cast<char>('0' + d);
    for (const auto& [letter, times] : count)
      if (times == 1 && letter > '9') all.result += letter;
  }
  for (const char c : all.result)
    if (count[c] == 0 || std::count(all.result.begin(), all.result.end(), c) > 1)
      return wrong(std::string("has '") + c + "' in its result, which " +
                   (count[c] == 0 ? "no operand has" : "is there twice"));
  return all;
}

// operands of floats or integers, with the axes that the equation names -> [extents of the result's letters]
Status infer_einsum(InferContext& c) {
  std::vector<size_t> ranks;
  for (size_t i = 0; i < c.in.size(); ++i) {
    SITU_RETURN_IF_ERROR(c.need(i, "an operand"));
    ranks.push_back(c.input(i).shape.size());
  }
  const Result<EinsumTerms> terms = einsum_terms(c.node.attr_string("equation", ""), ranks);
  if (!terms.is_ok()) return c.fail(terms.status().message());
  std::map<char, Dim> extents;
  for (size_t i = 0; i < ranks.size(); ++i)
    for (size_t a = 0; a < ranks[i]; ++a) {
      const Dim& extent = c.input(i).shape[a];
      const auto [known, fresh] = extents.emplace(terms->operands[i][a], extent);
      if (fresh || known->second == extent) continue;
      if (known->second == Dim(1) || extent == Dim(1))
        return c.fail(std::string("axes '") + terms->operands[i][a] + "' of " + known->second.str() + " and " +
                      extent.str() + " rows: Einsum that repeats rows is not supported");
      SITU_RETURN_IF_ERROR(
          require_equal(c, std::string("axis '") + terms->operands[i][a] + "'", known->second, extent, &known->second));
    }
  Shape shape;
  for (const char letter : terms->result) shape.push_back(extents.at(letter));
  return emit(c, 0, c.input(0).type, std::move(shape));
}

}  // namespace situ
