// Rotary position embeddings, however they are spelt (rotate_half with Slice, Neg and Concat; strided
// slices; partial with a pass-through tail), become situ.Rotary. A cone is recognised by evaluating
// it on random input with the graph's own cos and sin tables and comparing with the closed form of
// Su et al., RoFormer, arXiv 2104.09864.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "ops/op.h"
#include "passes/context/builder.h"
#include "passes/context/pass_context.h"
#include "passes/host/probe.h"
#include "passes/host/turning_points.h"
#include "passes/recognise/passes.h"

namespace situ {
namespace {

constexpr int kMaxConeNodes = 28;
constexpr float kTolerance = 1e-5f;

// A table that holds every number twice: where they stand once, and the functions that make the table's numbers of
// them.
struct Half {
  ValueId value = kNoValue;    // kNoValue: nowhere
  std::vector<int64_t> perm;   // in the order of axes that the table has; empty: they stand so
  ValueId doubled = kNoValue;  // what holds these twice, in order: the table, or what the first function reads
  std::vector<Node> functions;
};

struct Match {
  ValueId x, cos, sin;
  Half half_cos, half_sin;
  std::vector<int> rows;  // of half the columns, of tables that are sections of several rows; empty: they are not
  int64_t rotary_dim;
  bool interleaved;
  int seq_axis;
};

class Recogniser {
 public:
  explicit Recogniser(PassContext& context)
      : context_(context), graph_(context.graph), prober_(graph_, context.binding, context.evaluator) {}

  Status run() {
    std::map<int, Match> found;
    std::set<int> used;
    for (int n = static_cast<int>(graph_.nodes.size()) - 1; n >= 0; --n) {
      const Node& node = graph_.nodes[n];
      const bool candidate = node.is("Add") || node.is("Concat") || node.is("Reshape");
      if (!candidate || used.count(n)) continue;
      Match match;
      Cone cone;
      if (!recognise(node.out[0], &match, &cone)) continue;
      used.insert(cone.nodes.begin(), cone.nodes.end());
      match.half_cos = halved(match.cos, match.interleaved);
      match.half_sin = halved(match.sin, match.interleaved);
      // Both or none: the kernel reads them alike.
      if (match.half_cos.value == kNoValue || match.half_sin.value == kNoValue) {
        match.half_cos = match.half_sin = Half{};
        match.rows = rows_by_column(match);
      }
      found.emplace(n, match);
    }
    return found.empty() ? Status::ok() : rewrite(found);
  }

 private:
  static bool allowed(const Node& n) {
    static const std::set<std::string> kOps{"Add",       "Sub",    "Mul",       "Neg",      "Slice",
                                            "Split",     "Concat", "Unsqueeze", "Squeeze",  "Reshape",
                                            "Transpose", "Cast",   "Gather",    "Identity", "Expand"};
    return n.domain.empty() && kOps.count(n.op);
  }

  // What is taken of its operand is the same at every step: one alone is probed.
  bool picks_alike(const Node& n) const {
    return (n.op != "Slice" && n.op != "Split" && n.op != "Gather") ||
           std::none_of(n.in.begin() + 1, n.in.end(), [&](ValueId v) { return prober_.changes(v); });
  }

  bool recognise(ValueId root, Match* match, Cone* cone) {
    const Shape& shape = graph_.values[root].info.shape;
    if (graph_.values[root].info.type != DType::kF32 || prober_.known(root) || (shape.size() != 3 && shape.size() != 4))
      return false;
    if (!shape.back().is_const() || shape.back().value() % 2 != 0) return false;
    for (ValueId x : prober_.dominators(root, kMaxConeNodes)) {
      if (graph_.values[x].info.type != DType::kF32 || !(graph_.values[x].info.shape == shape)) continue;
      auto c = prober_.cone(root, x, kMaxConeNodes);
      if (!c) break;
      bool plain = c->nodes.size() >= 3;
      for (int i : c->nodes) plain = plain && allowed(graph_.nodes[i]) && picks_alike(graph_.nodes[i]);
      if (!plain) continue;
      const std::vector<ValueId> tables = host_leaves(*c);
      if (tables.size() != 2 || !compare(root, x, tables, match)) continue;
      *cone = *c;
      return true;
    }
    return false;
  }

  // Values of the cone's nodes that change with the position: cos and sin.
  std::vector<ValueId> host_leaves(const Cone& cone) const {
    std::set<ValueId> leaves;
    for (int i : cone.nodes)
      for (ValueId v : graph_.nodes[i].in)
        if (v != kNoValue && graph_.values[v].info.type == DType::kF32 && (prober_.host(v) || fixed_rows(v)))
          leaves.insert(v);
    return {leaves.begin(), leaves.end()};
  }

  // Of an encoder of known extents tables are constants: [.., rows, C].
  bool fixed_rows(ValueId v) const {
    const Shape& shape = graph_.values[v].info.shape;
    return context_.encoder && graph_.values[v].constant.present() && shape.size() >= 2 &&
           shape[shape.size() - 2] != Dim(1);
  }

  bool compare(ValueId root, ValueId x, const std::vector<ValueId>& tables, Match* match) {
    const Shape& shape = graph_.values[x].info.shape;
    const int rank = static_cast<int>(shape.size());
    int seq = -1;
    for (int i = 0; i + 1 < rank; ++i)
      if (shape[i] == (context_.phase == Phase::kDecode ? Dim(1) : Dim::symbol(kSymS)) && i > 0) seq = i;
    if (fixed_rows(tables[0]) && fixed_rows(tables[1])) {
      const Shape& rows = graph_.values[tables[0]].info.shape;
      seq = rank >= 2 && rows[rows.size() - 2] == shape[static_cast<size_t>(rank) - 2] ? rank - 2 : -1;
    }
    if (seq != rank - 2 && !(rank == 4 && seq == 1)) return false;
    const Tensor input = prober_.random(prober_.dims(x, context_.probe_tokens(), context_.probe_past()), 7);
    Result<Tensor> output = prober_.evaluate(root, {{x, input}}, context_.probe_tokens(), context_.probe_past());
    Result<Tensor> a = prober_.host_value(tables[0], context_.probe_tokens(), context_.probe_past()),
                   b = prober_.host_value(tables[1], context_.probe_tokens(), context_.probe_past());
    if (!output.is_ok() || !a.is_ok() || !b.is_ok() || a->rank() < 1 || a->dims() != b->dims()) return false;
    const int64_t width = a->dims().back();
    for (bool swapped : {false, true})
      for (bool interleaved : {false, true})
        for (int64_t rotary_dim : {width, 2 * width}) {
          if (rotary_dim > input.dims().back() || rotary_dim % 2 != 0) continue;
          const Tensor &cos = swapped ? *b : *a, &sin = swapped ? *a : *b;
          if (!equal(input, *output, cos, sin, rotary_dim, interleaved)) continue;
          match->x = x;
          match->cos = tables[swapped];
          match->sin = tables[!swapped];
          match->rotary_dim = rotary_dim;
          match->interleaved = interleaved;
          match->seq_axis = seq;
          return true;
        }
    return false;
  }

  // Value of a table at column c for the row that element index `idx` of x stands in (broadcast).
  static float table_at(const Tensor& t, const std::vector<int64_t>& idx, int64_t c) {
    const std::vector<int64_t> dims = t.dims();
    int64_t offset = 0, stride = 1;
    for (size_t i = dims.size(); i-- > 0;) {
      const size_t xi = idx.size() - dims.size() + i;
      const int64_t k = i + 1 == dims.size() ? c : (dims[i] == 1 ? 0 : idx[xi]);
      offset += k * stride;
      stride *= dims[i];
    }
    return t.view().as<float>()[offset];
  }

  static bool equal(const Tensor& x, const Tensor& y, const Tensor& cos, const Tensor& sin, int64_t rotary_dim,
                    bool interleaved) {
    const std::vector<int64_t> dims = x.dims();
    if (cos.rank() > x.rank()) return false;
    for (int i = 0; i + 1 < cos.rank(); ++i) {
      const int64_t d = cos.dims()[i], xd = dims[dims.size() - cos.dims().size() + i];
      if (d != 1 && d != xd) return false;
    }
    const int64_t size = dims.back(), width = cos.dims().back(), half = rotary_dim / 2;
    const float *px = x.view().as<float>(), *py = y.view().as<float>();
    std::vector<int64_t> idx(dims.size(), 0);
    for (int64_t row = 0; row < x.count() / size; ++row) {
      int64_t rest = row;
      for (size_t i = dims.size() - 1; i-- > 0;) {
        idx[i] = rest % dims[i];
        rest /= dims[i];
      }
      for (int64_t d = 0; d < size; ++d) {
        float expected = px[row * size + d];
        if (d < rotary_dim) {
          const int64_t pair = interleaved ? d ^ 1 : (d < half ? d + half : d - half);
          const bool first = interleaved ? d % 2 == 0 : d < half;
          const int64_t column = width == rotary_dim ? d : (interleaved ? d / 2 : d % half);
          expected = expected * table_at(cos, idx, column) +
                     (first ? -1.0f : 1.0f) * px[row * size + pair] * table_at(sin, idx, column);
        }
        if (!(std::fabs(expected - py[row * size + d]) <= kTolerance * (1 + std::fabs(expected)))) return false;
      }
    }
    return true;
  }

  // Each number of rows of `width` that hold every number twice.
  static std::optional<std::vector<float>> once(const std::vector<float>& x, size_t width, bool interleaved) {
    std::vector<float> numbers;
    for (size_t row = 0; row + width <= x.size(); row += width)
      for (size_t i = 0; i < width / 2; ++i) {
        const size_t a = interleaved ? 2 * i : i, b = interleaved ? 2 * i + 1 : i + width / 2;
        if (x[row + a] != x[row + b]) return std::nullopt;
        numbers.push_back(x[row + a]);
      }
    return numbers;
  }

  // The operand of a function of single numbers; kNoValue: it is none.
  ValueId function_operand(const Node& n) const {
    if (!n.def || (n.def->placement != Placement::kElementwise && !n.is("Cast")) || n.out.size() != 1) return kNoValue;
    ValueId operand = kNoValue;
    for (ValueId v : n.in) {
      if (v == kNoValue || (graph_.values[v].constant.present() && graph_.values[v].constant.count() == 1)) continue;
      if (operand != kNoValue) return kNoValue;
      operand = v;
    }
    return operand;
  }

  // A table that holds every number twice (repeat_interleave, a Concat of one part with itself, perhaps before cos and
  // sin are taken) is read where they stand once: the nearest value behind views, copies and functions of single
  // numbers whose elements are the first halves.
  Half halved(ValueId table, bool interleaved) {
    const auto [known, fresh] = halves_.try_emplace(std::make_pair(table, interleaved));
    if (fresh) {
      const Half half = find_half(table, interleaved);
      if (half.value != kNoValue &&
          held_twice_at_every_step(half, static_cast<size_t>(graph_.values[table].info.shape.back().value()),
                                   interleaved))
        known->second = half;
    }
    return known->second;
  }

  // The numbers of t with its axes in the order `perm`; empty: as they stand.
  std::vector<float> ordered_floats(const Tensor& t, const std::vector<int64_t>& perm) {
    if (perm.empty()) return floats(t);
    Node transpose;
    transpose.op = "Transpose";
    transpose.opset = 13;
    transpose.def = find_op("", "Transpose", 13);
    transpose.in = {0};
    transpose.out = {0};
    transpose.set_ints("perm", perm);
    const Result<std::vector<Tensor>> ordered = context_.evaluator.node(transpose, {t});
    return ordered.is_ok() ? floats((*ordered)[0]) : std::vector<float>{};
  }

  // All axes in order, but the one of `width` numbers last; empty: there is no such axis, or it is last.
  static std::vector<int64_t> axis_last(const std::vector<int64_t>& dims, size_t width) {
    const auto at = std::find(dims.begin(), dims.end(), static_cast<int64_t>(width));
    if (at == dims.end() || at + 1 == dims.end()) return {};
    std::vector<int64_t> perm;
    for (size_t i = 0; i < dims.size(); ++i)
      if (dims.begin() + static_cast<int64_t>(i) != at) perm.push_back(static_cast<int64_t>(i));
    perm.push_back(at - dims.begin());
    return perm;
  }

  // One step shows it; others, where the table is another one.
  bool held_twice_at_every_step(const Half& half, size_t width, bool interleaved) {
    return agree_at_every_step(half.doubled, half.value, [&](const Tensor& twice, const Tensor& single) {
      return once(floats(twice), width, interleaved) == ordered_floats(single, half.perm);
    });
  }

  // All that changes in `a` are the numbers of `b`, in places that are the same at every step: one step in which each
  // place has a number of its own shows the others.
  bool moved_alike(ValueId a, ValueId b) const {
    static const std::set<std::string> kMoves{"Concat", "Gather", "Tile", "Where"};
    std::vector<ValueId> open{a};
    for (std::set<ValueId> seen{b}; !open.empty();) {
      const ValueId v = open.back();
      open.pop_back();
      if (!prober_.changes(v) || !seen.insert(v).second) continue;
      const Node* n = graph_.producer(v);
      if (!n || !n->def || (n->def->placement != Placement::kView && !kMoves.count(n->op))) return false;
      open.insert(open.end(), n->in.begin(), n->in.end());
    }
    return shape_is_const(graph_.values[b].info.shape);
  }

  Tensor numbered(ValueId v) const {
    Tensor t = Tensor::allocate(DType::kF32, shape_values(graph_.values[v].info.shape));
    for (int64_t i = 0; i < t.count(); ++i) t.view().as<float>()[i] = static_cast<float>(i);
    return t;
  }

  static constexpr int64_t kFar = 16384;  // tokens of a step that is looked at beside those that tell all others

  template <typename Agree>
  bool agree_at_every_step(ValueId a, ValueId b, Agree agree) {
    // A step of all tokens has every row of a table.
    constexpr int64_t kMostRows = 131072;
    if (moved_alike(a, b)) {
      const Tensor each = numbered(b);
      const Result<Tensor> x = prober_.evaluate(a, {{b, each}}, context_.probe_tokens(), context_.probe_past());
      return x.is_ok() && agree(*x, each);
    }
    const int64_t all = std::min(context_.context_length, kMostRows);
    TellingSteps telling =
        telling_steps(graph_, prober_, {a, b}, context_.phase, context_.context_length, Judged::kCompared);
    if (!telling.told && (context_.phase == Phase::kDecode || all < context_.context_length)) return false;
    if (context_.phase != Phase::kDecode) telling.steps.emplace_back(telling.told ? std::min(all, kFar) : all, 0);
    return std::all_of(telling.steps.begin(), telling.steps.end(), [&](const auto& step) {
      const auto [tokens, past] = step;
      const Result<Tensor> x = prober_.host_value(a, tokens, past), y = prober_.host_value(b, tokens, past);
      return x.is_ok() && y.is_ok() && agree(*x, *y);
    });
  }

  // A table whose columns are those of several rows (the sections of M-RoPE: time, height, width).
  struct Sections {
    ValueId value = kNoValue;          // the rows [R, .., S, C], behind views and Concat; kNoValue: the table has none
    std::vector<uint32_t> candidates;  // by column: bit r: it is that of row r at every step
    Half half;                         // of `value`
  };
  // Rows that a table is put together of, and which of them each column may be.
  const Sections& sections_of(ValueId table, bool interleaved) {
    const auto [known, fresh] = sections_.try_emplace(table);
    Sections& found = known->second;
    if (!fresh) return found;
    const int64_t tokens = context_.probe_tokens(), past = context_.probe_past();
    const Result<Tensor> whole = prober_.host_value(table, tokens, past);
    bool joined = false;
    for (ValueId v = table; whole.is_ok() && graph_.values[v].producer >= 0;) {
      const Node& n = *graph_.producer(v);
      joined = joined || n.is("Concat");
      if (!n.is("Concat") && (!n.def || n.def->placement != Placement::kView) && !n.is("Gather")) break;
      v = n.in[0];
      if (!prober_.host(v)) break;
      const Result<Tensor> t = prober_.host_value(v, tokens, past);
      if (!t.is_ok() || t->type() != DType::kF32 || t->rank() < 2) break;
      constexpr int64_t kMostRows = 4;
      if (!joined || t->dims()[0] < 2 || t->dims()[0] > kMostRows || t->count() != t->dims()[0] * whole->count() ||
          t->dims().back() != whole->dims().back())
        continue;
      found.candidates.assign(static_cast<size_t>(whole->dims().back()), (1u << t->dims()[0]) - 1);
      if (!agree_at_every_step(table, v,
                               [&](const Tensor& x, const Tensor& rows) { return narrow(x, rows, &found.candidates); }))
        continue;
      found.half = find_half(v, interleaved);
      if (found.half.value != kNoValue && !held_twice_at_every_step(found.half, found.candidates.size(), interleaved))
        found.half = Half{};
      found.value = v;
      break;
    }
    return found;
  }
  // Leaves the rows that columns of `table` equal here; false: one equals none.
  static bool narrow(const Tensor& table, const Tensor& rows, std::vector<uint32_t>* candidates) {
    const std::vector<float> x = floats(table), y = floats(rows);
    const size_t width = candidates->size();
    for (size_t c = 0; c < width; ++c)
      for (size_t r = 0; r * x.size() < y.size(); ++r)
        for (size_t i = c; i < x.size(); i += width)
          if (x[i] != y[r * x.size() + i]) (*candidates)[c] &= ~(1u << r);
    return std::find(candidates->begin(), candidates->end(), 0u) == candidates->end();
  }

  // The row of each column of both tables, where that is told and both have their numbers once; empty: it is not.
  std::vector<int> rows_by_column(const Match& m) {
    const Sections &cos = sections_of(m.cos, m.interleaved), &sin = sections_of(m.sin, m.interleaved);
    if (cos.value == kNoValue || sin.value == kNoValue || cos.half.value == kNoValue || sin.half.value == kNoValue ||
        !cos.half.perm.empty() || !sin.half.perm.empty() || m.interleaved)
      return {};
    // Sines of other positions are other numbers: where several rows will do they are equal.
    uint32_t all = ~0u;
    std::vector<uint32_t> either;
    for (size_t c = 0; c < cos.candidates.size(); ++c) {
      either.push_back(cos.candidates[c] & sin.candidates[c]);
      if (either.back() == 0) return {};
      all &= either.back();
    }
    std::vector<int> rows;
    for (const uint32_t e : either) rows.push_back(__builtin_ctz(all != 0 ? all : e));
    const size_t half = rows.size() / 2;
    if (rows.size() % 2 != 0 ||
        !std::equal(rows.begin(), rows.begin() + static_cast<long>(half), rows.begin() + static_cast<long>(half)))
      return {};
    rows.resize(half);
    return rows;
  }

  // The first half of a table of sections: each computed of its own columns of its own row, into its place.
  ValueId as_sections(Builder& builder, ValueId table, const std::vector<int>& rows) {
    const auto [known, fresh] = joined_.try_emplace(table, kNoValue);
    if (!fresh) return known->second;
    const Half& half = sections_.at(table).half;
    const ValueInfo whole = graph_.values[half.value].info;
    std::vector<ValueId> parts;
    for (size_t begin = 0, end = 0; begin < rows.size(); begin = end) {
      while (end < rows.size() && rows[end] == rows[begin]) ++end;
      const int64_t last = static_cast<int64_t>(whole.shape.size()) - 1;
      ValueId v = builder.op("Slice", {half.value, builder.constant_i64({rows[begin], static_cast<int64_t>(begin)}),
                                       builder.constant_i64({rows[begin] + 1, static_cast<int64_t>(end)}),
                                       builder.constant_i64({0, last})});
      Shape dims = whole.shape;
      dims.front() = Dim(1);
      dims.back() = Dim(static_cast<int64_t>(end - begin));
      graph_.values[v].info = {whole.type, true, dims, {}};
      for (const Node& f : half.functions) {
        std::vector<ValueId> in = f.in;
        std::replace(in.begin(), in.end(), function_operand(f), v);
        v = builder.again(f, in);
        graph_.values[v].info = {DType::kF32, true, dims, {}};
      }
      parts.push_back(v);
    }
    ValueId joined = parts[0];
    if (parts.size() > 1) {
      joined = builder.op("Concat", parts);
      builder.last().set_int("axis", -1);
      Shape dims = whole.shape;
      dims.front() = Dim(1);
      graph_.values[joined].info = {DType::kF32, true, dims, {}};
    }
    Shape dims = graph_.values[table].info.shape;
    dims.back() = Dim(dims.back().value() / 2);
    const ValueId view = builder.op("Reshape", {joined, graph_.add_shape("dims", dims)});
    graph_.values[view].info = {DType::kF32, true, dims, {}};
    return known->second = view;
  }

  Half find_half(ValueId table, bool interleaved) {
    const int64_t tokens = context_.probe_tokens(), past = context_.probe_past();
    Result<Tensor> whole = prober_.host_value(table, tokens, past);
    if (!whole.is_ok() || whole->rank() < 1 || whole->dims().back() % 2 != 0) return {};
    const size_t width = static_cast<size_t>(whole->dims().back());
    std::optional<std::vector<float>> numbers = once(floats(*whole), width, interleaved);
    static const std::set<std::string> kOrdered{"Reshape", "Unsqueeze", "Squeeze", "Flatten", "Identity"},
        kCopies{"Concat", "Tile"};
    Half half;
    half.doubled = table;
    bool ordered = true;  // elements stand in the order that they have in the table
    for (ValueId v = table; numbers && graph_.values[v].producer >= 0;) {
      const Node& n = *graph_.producer(v);
      const ValueId operand = function_operand(n);
      const bool moves = n.def && (n.def->placement == Placement::kView || kCopies.count(n.op));
      if (!moves && (operand == kNoValue || !ordered)) break;
      v = moves ? n.in[0] : operand;
      if (!prober_.host(v) || graph_.values[v].info.content) break;
      const Result<Tensor> t = prober_.host_value(v, tokens, past);
      if (!t.is_ok() || t->type() != DType::kF32) break;
      if (!moves) {
        half.functions.insert(half.functions.begin(), n);
        half.doubled = v;
        numbers = once(floats(*t), width, interleaved);
        continue;
      }
      ordered = ordered && kOrdered.count(n.op);
      const std::vector<int64_t> perm = axis_last(t->dims(), width / 2);
      if (floats(*t) != *numbers) {
        if (perm.empty() || ordered_floats(*t, perm) != *numbers) continue;
        half.perm = perm;
      }
      half.value = v;
      return half;
    }
    return {};
  }

  // The halved table under the whole one's dims, but for the last.
  ValueId with_half_width(Builder& builder, ValueId table, const Half& half) {
    if (half.value == kNoValue) return table;
    const auto [known, fresh] = half_width_.try_emplace(table, kNoValue);
    if (!fresh) return known->second;
    ValueId v = half.value;
    if (!half.perm.empty()) {
      const ValueInfo info = graph_.values[v].info;
      v = builder.transpose(v, half.perm);
      Shape dims;
      for (int64_t axis : half.perm) dims.push_back(info.shape[static_cast<size_t>(axis)]);
      graph_.values[v].info = {info.type, true, dims, {}};
    }
    for (const Node& f : half.functions) {
      std::vector<ValueId> in = f.in;
      std::replace(in.begin(), in.end(), function_operand(f), v);
      const ValueId y = builder.again(f, in);
      graph_.values[y].info = {DType::kF32, true, graph_.values[v].info.shape, {}};
      v = y;
    }
    Shape dims = graph_.values[table].info.shape;
    dims.back() = Dim(dims.back().value() / 2);
    const ValueId view = builder.op("Reshape", {v, graph_.add_shape("dims", dims)});
    graph_.values[view].info = {DType::kF32, true, dims, {}};
    return known->second = view;
  }

  // A table for x in the layout [B, H, S, C].
  ValueId align_table(Builder& builder, ValueId table, int seq_axis, int rank) {
    if (rank == 4 && seq_axis == 1) {
      const int missing = 4 - static_cast<int>(graph_.values[table].info.shape.size());
      std::vector<int64_t> axes;
      for (int i = 0; i < missing; ++i) axes.push_back(i);
      if (missing > 0) table = builder.op("Unsqueeze", {table, builder.constant_i64(axes)});
      return builder.transpose(table, {0, 2, 1, 3});
    }
    return table;
  }

  Status rewrite(const std::map<int, Match>& found) {
    Builder builder(graph_);
    std::vector<Node> nodes = std::exchange(graph_.nodes, {});
    for (size_t n = 0; n < nodes.size(); ++n) {
      auto it = found.find(static_cast<int>(n));
      if (it == found.end()) {
        builder.keep(std::move(nodes[n]));
        continue;
      }
      const Match& m = it->second;
      const ValueId result = nodes[n].out[0];
      const int rank = static_cast<int>(graph_.values[m.x].info.shape.size());
      builder.start(nodes[n]);
      const auto table = [&](ValueId v, const Half& half) {
        const ValueId once = m.rows.empty() ? with_half_width(builder, v, half) : as_sections(builder, v, m.rows);
        return align_table(builder, once, m.seq_axis, rank);
      };
      const ValueId cos = table(m.cos, m.half_cos), sin = table(m.sin, m.half_sin);
      ValueId x = m.x;
      if (rank == 3) x = builder.op("Unsqueeze", {x, builder.constant_i64({0})});
      if (rank == 4 && m.seq_axis == 1) x = builder.transpose(x, {0, 2, 1, 3});
      const bool direct = rank == 4 && m.seq_axis == 2;
      ValueId y = builder.op("Rotary", {x, cos, sin}, direct ? result : kNoValue, "situ");
      builder.last().set_int("rotary_dim", m.rotary_dim);
      builder.last().set_int("interleaved", m.interleaved);
      if (rank == 3) builder.op("Squeeze", {y, builder.constant_i64({0})}, result);
      if (rank == 4 && m.seq_axis == 1) builder.transpose(y, {0, 2, 1, 3}, result);
      context_.note("rotary", nodes[n].name,
                    std::to_string(m.rotary_dim) + (m.interleaved ? " interleaved" : " half") + " dims");
    }
    SITU_RETURN_IF_ERROR(builder.finish());
    graph_.remove_dead_nodes();
    return Status::ok();
  }

  PassContext& context_;
  Graph& graph_;
  Prober prober_;
  std::map<ValueId, ValueId> half_width_, joined_;  // by table
  std::map<ValueId, Sections> sections_;
  std::map<std::pair<ValueId, bool>, Half> halves_;  // by table and whether it is interleaved
};

}  // namespace

Status recognise_rotary(PassContext& context) { return Recogniser(context).run(); }

}  // namespace situ
