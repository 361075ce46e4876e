#include "runtime/cross_attention.h"

#include <algorithm>
#include <cmath>

#include "base/assign.h"
#include "base/tensor.h"

namespace situ {
namespace {

// Whether node `n` attends to rows that another program wrote.
bool attends_to_source(const Graph& graph, const Plan& plan, const Node& n) {
  if (!n.is("Attention", "situ") || graph.values[n.in[1]].info.shape.size() != 4) return false;
  const Home& keys = plan.values[n.in[1]];
  return keys.region == RegionKind::kState &&
         plan.states[static_cast<size_t>(keys.root)].pair.rule == StateRule::kSource;
}

bool is_float(DType t) { return t == DType::kF32 || t == DType::kF16 || t == DType::kBF16; }

// Row-major floats of a matrix [rows, size].
std::vector<float> floats_of(const View& v, Ledger& ledger) {
  std::vector<float> values;
  values.reserve(static_cast<size_t>(v.count()));
  for (int64_t r = 0; r < v.dims[0]; ++r)
    for (int64_t i = 0; i < v.dims[1]; ++i) values.push_back(float_at(v, r * v.strides[0] + i * v.strides[1]));
  ledger.computed += static_cast<int64_t>(values.size() * sizeof(float));
  return values;
}

// Head `h` of [1, heads, rows, size].
View head_of(const View& all, int64_t h) {
  View v = all;
  v.rank = 2;
  v.data += h * all.strides[1] * dtype_bytes(all.type);
  for (int a = 0; a < 2; ++a) {
    v.dims[a] = all.dims[a + 2];
    v.strides[a] = all.strides[a + 2];
  }
  return v;
}

}  // namespace

Result<std::unique_ptr<CrossAttention>> CrossAttention::create(const Compiled& compiled, const PlanBounds& bounds,
                                                               const StatePool& states, Executor& executor) {
  std::unique_ptr<CrossAttention> made(new CrossAttention);
  const Graph& graph = compiled.graph;
  made->binding_ = compiled.binding;
  for (const Node& n : graph.nodes)
    if (n.is("Attention", "situ")) made->binding_.kept.push_back(n.in[0]);
  SITU_RETURN_IF_ERROR(assign(&made->plan_, make_plan(graph, made->binding_, bounds)));
  const int64_t arena = made->plan_.arena_bytes;
  SITU_RETURN_IF_ERROR(
      assign(&made->memory_, ReservedMemory::of(arena + made->plan_.io_bytes + 64, "for an alignment")));
  const Regions regions{made->memory_.data(), made->memory_.data() + arena, &states};
  SITU_RETURN_IF_ERROR(
      assign(&made->program_, Program::create(graph, made->binding_, made->plan_, compiled.order, regions, executor)));
  const std::vector<Call>& calls = made->program_->schedule().calls;
  for (size_t i = 0; i < calls.size(); ++i) {
    const Step& step = made->plan_.steps[static_cast<size_t>(calls[i].step)];
    if (step.move) continue;
    const Node& node = graph.nodes[static_cast<size_t>(step.node)];
    if (!attends_to_source(graph, made->plan_, node)) continue;
    made->calls_.push_back({static_cast<int>(i), node.attr_float("scale", 1)});
    const Dim& heads = graph.values[node.in[0]].info.shape[1];
    made->heads_ = heads.is_const() ? heads.value() : 0;
  }
  if (made->calls_.empty())
    return Status::error(Code::kUnsupportedModel, "the decoder's attention to its source was not recognised");
  return made;
}

Status CrossAttention::begin(const Segment& segment, std::span<const AttentionHead> heads, Ledger& ledger) {
  for (const AttentionHead& h : heads)
    if (h.layer < 0 || h.layer >= layers() || h.head < 0 || h.head >= heads_)
      return Status::error(Code::kBadFile, "alignment head [" + std::to_string(h.layer) + ", " +
                                               std::to_string(h.head) + "]: the decoder has " +
                                               std::to_string(layers()) + " layers of " + std::to_string(heads_) +
                                               " heads");
  segment_ = segment;
  // All logits are wanted: what only the last token's hang on is else left out for the others.
  input_ = StepInput{{&segment_, 1}, segment.count};
  left_.assign(heads.rbegin(), heads.rend());
  weights_.clear();
  computed_ = false;
  return program_->prepare(input_, ledger);
}

Result<bool> CrossAttention::go_on(Clock::time_point until, Ledger& ledger) {
  if (!computed_) {
    const Result<bool> done = program_->go_on(until, ledger);
    if (!done.is_ok() || !*done) return done;
    computed_ = true;
  }
  while (!left_.empty()) {
    SITU_RETURN_IF_ERROR(add_weights(left_.back(), ledger));
    left_.pop_back();
    if (Clock::now() >= until) break;
  }
  return left_.empty();
}

Status CrossAttention::add_weights(const AttentionHead& h, Ledger& ledger) {
  const LayerCall& layer = calls_[static_cast<size_t>(h.layer)];
  const View* operands = program_->operands(layer.call);
  const View &q = operands[0], &k = operands[1];
  const int64_t group = std::max<int64_t>(1, q.dims[1] / std::max<int64_t>(1, k.dims[1])), tokens = q.dims[2],
                rows = segment_.source_rows, size = q.dims[3];
  if (k.dims[3] != size || !is_float(k.type) || !is_float(q.type))
    return Status::error(Code::kUnsupportedModel,
                         std::string("word times need queries and keys of floats, and these are ") +
                             dtype_name(q.type) + " " + std::to_string(size) + " and " + dtype_name(k.type) + " " +
                             std::to_string(k.dims[3]) + " wide");
  View keys = head_of(k, h.head / group);
  keys.dims[0] = rows;
  // Read by runs of slots, keys are those of the whole space.
  if (program_->schedule().calls[static_cast<size_t>(layer.call)].by_run >> 1 & 1)
    keys.data += segment_.source_slot * keys.strides[0] * dtype_bytes(keys.type);
  // Keys by column: products of a query with all of them are sums side by side.
  std::swap(keys.dims[0], keys.dims[1]);
  std::swap(keys.strides[0], keys.strides[1]);
  const std::vector<float> queries = floats_of(head_of(q, h.head), ledger), columns = floats_of(keys, ledger);
  for (int64_t t = 0; t < tokens; ++t) {
    const size_t at = weights_.size();
    weights_.resize(at + static_cast<size_t>(rows));
    float* row = weights_.data() + at;
    for (int64_t i = 0; i < size; ++i) {
      const float x = queries[static_cast<size_t>(t * size + i)];
      const float* column = columns.data() + i * rows;
      for (int64_t r = 0; r < rows; ++r) row[r] += x * column[r];
    }
    float largest = -INFINITY, total = 0;
    for (int64_t r = 0; r < rows; ++r) largest = std::max(largest, row[r] *= layer.scale);
    for (int64_t r = 0; r < rows; ++r) total += row[r] = std::exp(row[r] - largest);
    for (int64_t r = 0; r < rows; ++r) row[r] /= total;
  }
  return Status::ok();
}

}  // namespace situ
