#include "passes/module/embedding_merge.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "ops/op.h"
#include "passes/module/specialise.h"

namespace situ {
namespace {

// The text of a probe, and after it `i + 2` rows of the token of input i in several pieces: counts differ, so that a
// graph that mixes inputs up does not fit by chance.
constexpr int kText = 5;

// By value: whether any of `inputs` is among what it is made of.
std::vector<char> made_of(const Graph& graph, const std::vector<ValueId>& inputs) {
  std::vector<char> made(graph.values.size());
  for (const ValueId v : inputs) made[v] = 1;
  for (const Node& n : graph.nodes) {
    const bool any = std::any_of(n.in.begin(), n.in.end(), [&](ValueId v) { return v != kNoValue && made[v]; });
    for (const ValueId v : n.out)
      if (v != kNoValue && any) made[v] = 1;
  }
  return made;
}

Tensor ids_tensor(DType type, const std::vector<int64_t>& ids) {
  Tensor t = Tensor::allocate(type, {1, static_cast<int64_t>(ids.size())});
  for (size_t i = 0; i < ids.size(); ++i)
    if (type == DType::kI64)
      t.view().as<int64_t>()[i] = ids[i];
    else
      t.view().as<int32_t>()[i] = static_cast<int32_t>(ids[i]);
  return t;
}

class Merge {
 public:
  Merge(Graph& lookup, ValueId ids, std::vector<ValueId> features, ValueId out)
      : lookup_(lookup), ids_(ids), features_(std::move(features)), out_(out) {}

  // The value that the merge writes rows into, if rows of features_[i] stand for tokens[i].
  Result<ValueId> base_for(const std::vector<int64_t>& tokens, int64_t width, Evaluator& evaluator) const {
    const std::vector<int64_t> ids = probe_ids(tokens);
    const DType type = lookup_.values[out_].info.type;
    std::map<ValueId, Tensor> feeds{{ids_, ids_tensor(lookup_.values[ids_].info.type, ids)}};
    for (size_t i = 0; i < features_.size(); ++i) feeds[features_[i]] = rows_of(i, type, width);
    Graph graph = lookup_;
    const std::vector<ValueId> bases = candidates();
    std::vector<ValueId> outputs{out_};
    outputs.insert(outputs.end(), bases.begin(), bases.end());
    slice(graph, outputs);
    SITU_RETURN_IF_ERROR(resolve_ops(graph));
    Result<std::vector<Tensor>> made = evaluator.graph(graph, feeds);
    if (!made.is_ok()) return made.status();
    const int64_t row = width * dtype_bits(type) / 8;
    for (size_t c = 0; c < bases.size(); ++c) {
      const Tensor &merged = (*made)[0], &base = (*made)[c + 1];
      if (base.type() != type || base.dims() != merged.dims() || merged.count() != count(ids) * width) continue;
      std::vector<int64_t> used(features_.size());
      bool same = true;
      for (size_t s = 0; s < ids.size() && same; ++s) {
        const size_t i = static_cast<size_t>(std::find(tokens.begin(), tokens.end(), ids[s]) - tokens.begin());
        const Tensor& from = i < tokens.size() ? feeds.at(features_[i]) : base;
        const int64_t at = i < tokens.size() ? used[i]++ : static_cast<int64_t>(s);
        same = std::memcmp(merged.view().data + static_cast<int64_t>(s) * row, from.view().data + at * row,
                           static_cast<size_t>(row)) == 0;
      }
      if (same) return bases[c];
    }
    return kNoValue;
  }

 private:
  static int64_t count(const std::vector<int64_t>& ids) { return static_cast<int64_t>(ids.size()); }

  // Floats of ids alone that something made of features reads, the last ones first.
  std::vector<ValueId> candidates() const {
    const std::vector<char> of_ids = made_of(lookup_, {ids_}), of_rows = made_of(lookup_, features_);
    std::vector<ValueId> found;
    for (size_t n = lookup_.nodes.size(); n-- > 0;) {
      if (lookup_.nodes[n].out.empty() || lookup_.nodes[n].out[0] == kNoValue || !of_rows[lookup_.nodes[n].out[0]])
        continue;
      for (const ValueId v : lookup_.nodes[n].in)
        if (v != kNoValue && v != ids_ && of_ids[v] && !of_rows[v] && lookup_.values[v].producer >= 0 &&
            std::find(found.begin(), found.end(), v) == found.end())
          found.push_back(v);
    }
    return found;
  }

  static std::vector<int64_t> probe_ids(const std::vector<int64_t>& tokens) {
    std::vector<int64_t> ids;
    for (int64_t id = 0; count(ids) < kText; ++id)
      if (std::find(tokens.begin(), tokens.end(), id) == tokens.end()) ids.push_back(id);
    for (size_t i = 0; i < tokens.size(); ++i) {
      ids.insert(ids.begin() + 1 + static_cast<long>(i), tokens[i]);
      ids.insert(ids.end() - 1, i + 1, tokens[i]);
    }
    return ids;
  }

  Tensor rows_of(size_t i, DType type, int64_t width) const {
    const int64_t rows = static_cast<int64_t>(i) + 2;
    std::vector<int64_t> dims{rows, width};
    if (lookup_.values[features_[i]].info.shape.size() == 3) dims.insert(dims.begin(), 1);
    Tensor t = Tensor::allocate(type, dims);
    for (int64_t j = 0; j < rows * width; ++j) {
      // Bits of a finite number of either 16-bit type; rows are moved, not computed with.
      const auto bits = static_cast<uint16_t>(0x3c00 + (j * 37 + static_cast<int64_t>(i) * 11) % 509);
      if (type == DType::kF32)
        t.view().as<uint32_t>()[j] = static_cast<uint32_t>(bits) << 16;
      else
        t.view().as<uint16_t>()[j] = bits;
    }
    return t;
  }

  const Graph& lookup_;
  const ValueId ids_;
  const std::vector<ValueId> features_;
  const ValueId out_;
};

}  // namespace

Status take_out_merge(Graph& lookup, std::span<const int64_t> tokens, Evaluator& evaluator) {
  std::vector<ValueId> ids, features;
  for (const ValueId v : lookup.inputs) {
    const ValueInfo& info = lookup.values[v].info;
    const size_t rank = info.shape.size();
    if (dtype_is_float(info.type) && (rank == 2 || rank == 3))
      features.push_back(v);
    else if (!dtype_is_float(info.type) && rank == 2)
      ids.push_back(v);
    else
      return Status::ok();  // for join_embeddings to refuse
  }
  if (features.empty() || ids.size() != 1) return Status::ok();
  const std::vector<char> of_rows = made_of(lookup, features);
  std::vector<ValueId> outputs;
  for (const ValueId v : lookup.outputs)
    if (of_rows[v] && lookup.values[v].info.shape.size() == 3) outputs.push_back(v);
  if (outputs.size() != 1)
    return Status::error(std::to_string(outputs.size()) + " of its outputs are embeddings [batch, tokens, width] " +
                         "with the rows of " + lookup.describe(features[0]) + " among them; one was expected");
  std::string inputs;
  Dim width = lookup.values[outputs[0]].info.shape[2];
  for (const ValueId v : features) {
    inputs += (inputs.empty() ? "" : ", ") + lookup.describe(v);
    if (!width.is_const()) width = lookup.values[v].info.shape.back();
    const DType type = lookup.values[v].info.type;
    if (type != lookup.values[outputs[0]].info.type || dtype_bits(type) > 32)
      return Status::error("input " + lookup.describe(v) + " cannot be rows of output " + lookup.describe(outputs[0]));
  }
  if (!width.is_const())
    return Status::error("neither " + inputs + " nor " + lookup.describe(outputs[0]) + " says how wide a row is");
  const std::string problem = "what becomes of input " + inputs;
  if (tokens.size() < features.size())
    return Status::error(problem + " is not known: the configuration names " + std::to_string(tokens.size()) +
                         " tokens that rows stand for (image_token_id, audio_token_id)");
  const Merge merge(lookup, ids[0], features, outputs[0]);
  std::vector<int64_t> order(tokens.begin(), tokens.end());
  std::sort(order.begin(), order.end());
  Status last;
  ValueId base = kNoValue;
  do {
    const Result<ValueId> found =
        merge.base_for({order.begin(), order.begin() + static_cast<long>(features.size())}, width.value(), evaluator);
    if (!found.is_ok()) last = found.status();
    if (found.is_ok() && *found != kNoValue) base = *found;
  } while (base == kNoValue && std::next_permutation(order.begin(), order.end()));
  if (base == kNoValue) {
    std::string names;
    for (const int64_t t : tokens) names += (names.empty() ? "" : ", ") + std::to_string(t);
    return Status::error(problem + " is not rows in the places of token " + names + " among the embeddings of text" +
                         (last.is_ok() ? "" : " (" + last.message() + ")"));
  }
  lookup.values[base].info = lookup.values[outputs[0]].info;
  slice(lookup, {base});
  return Status::ok();
}

}  // namespace situ
