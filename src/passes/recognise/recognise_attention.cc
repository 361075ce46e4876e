// Attention is recognised from Softmax outwards and by meaning: the nodes between QK^T and Softmax, the
// layout of K and V (repeat_kv, transposes), the mask and ALiBi are evaluated on probe inputs and
// compared with closed forms. What does not fit keeps running as it is.
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "passes/context/builder.h"
#include "passes/context/node_key.h"
#include "passes/context/part.h"
#include "passes/context/pass_context.h"
#include "passes/expand/expand_caches.h"
#include "passes/host/infer.h"
#include "passes/host/probe.h"
#include "passes/recognise/attention_scores.h"
#include "passes/recognise/passes.h"

namespace situ {
namespace {

constexpr int kMaxConeNodes = 24;
constexpr int64_t kManyNumbers = 1 << 14;

// How the axes of a source tensor make up [heads, rows, size].
struct Layout {
  ValueId source = kNoValue;
  float scale = 1;
  int64_t heads = 0, size = 0;
  int head_axis = -1, row_axis = -1, size_axis = -1;  // -1: the axis has extent 1 and is not there
};

struct Match : ScoreForm {
  int matmul_out = -1;  // the node that is replaced
  Tensor sink;          // [heads] scores beside those of the keys, whose probabilities go nowhere; or absent
  Layout q, k, v;
  StoredRows keys, values;  // where these are stored as integers
  std::string softmax;
};

Tensor row_of(const std::vector<float>& numbers) {
  const Tensor t = Tensor::allocate(DType::kF32, {static_cast<int64_t>(numbers.size())});
  for (size_t i = 0; i < numbers.size(); ++i) t.view().as<float>()[i] = numbers[i];
  return t;
}

class Recogniser {
 public:
  explicit Recogniser(PassContext& context)
      : context_(context),
        graph_(context.graph),
        prober_(graph_, context.binding, context.evaluator),
        users_(graph_.users()),
        tokens_(context.probe_tokens()),
        past_(context.probe_past()),
        scores_(context, prober_) {}

  Status run() {
    std::map<int, Match> found;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (!graph_.nodes[n].is("Softmax")) continue;
      Match m;
      std::string why;
      if (recognise(graph_.nodes[n], &m, &why))
        found.emplace(m.matmul_out, m);
      else if (shape(graph_.nodes[n].in[0]).size() > 2)  // else a router's choice
        context_.note("attention not recognised", graph_.nodes[n].name, why);
    }
    if (!found.empty()) SITU_RETURN_IF_ERROR(rewrite(found));
    SITU_RETURN_IF_ERROR(simplify_masks());
    return drop_repeats();
  }

 private:
  const Shape& shape(ValueId v) const { return graph_.values[v].info.shape; }

  bool recognise(const Node& softmax, Match* m, std::string* why) {
    m->softmax = softmax.name;
    const int rank = static_cast<int>(shape(softmax.in[0]).size());
    const int64_t axis = softmax.attr_int("axis", softmax.opset < 13 ? 1 : -1);
    if (axis != -1 && axis != rank - 1) return *why = "Softmax is not over the last axis", false;
    ValueId input = softmax.in[0], probabilities = softmax.out[0];
    take_sink(softmax, &input, &probabilities, &m->sink);
    const int pv = find_product(probabilities);
    if (pv < 0) return *why = "no product with V follows", false;
    const ValueId qk = prober_.scores(softmax, kMaxConeNodes);
    if (qk == kNoValue) return *why = "no product of Q and K leads to it", false;
    const Node &scores = graph_.nodes[graph_.values[qk].producer], &mix = graph_.nodes[pv];
    if (!(shape(input).back() == shape(scores.out[0]).back())) return *why = "Softmax is not over the keys", false;
    if (!identity_between(mix.in[0], probabilities))
      return *why = "something changes the probabilities before the product with V", false;
    if (!layout(scores.in[0], false, &m->q)) return *why = "Q has an unknown layout", false;
    if (!layout(scores.in[1], true, &m->k)) return *why = "K has an unknown layout", false;
    if (!layout(mix.in[1], false, &m->v)) return *why = "V has an unknown layout", false;
    m->matmul_out = m->sink.present() ? pv : take_gate(input, pv, &m->sink);
    m->keys = read_digits(&m->k);
    m->values = read_digits(&m->v);
    if (m->k.heads != m->v.heads || m->q.heads % m->k.heads != 0 || m->q.size != m->k.size || m->v.scale != 1)
      return *why = "Q, K and V do not fit together", false;
    if (!heads_in_groups(scores.in[0], scores.in[1]) || !heads_in_groups(mix.in[0], mix.in[1]))
      return *why = "query heads are not grouped by KV head", false;
    if (m->sink.present() && m->sink.count() != m->q.heads) return *why = "sinks are not one for each head", false;
    if (!scores_.recognise(input, scores.out[0], m->q.heads, m))
      return *why = "scale, softcap and mask have no closed form", false;
    if (m->sink.present() && m->bias == kNoValue && !scores_.nothing_for_whole_rows(input, scores.out[0], m->q.heads))
      return *why = "something is added to the scores, but not to the sink", false;
    m->scale *= m->q.scale * m->k.scale;
    // What is added to all scores of a row, as by zero points, Softmax does not see, nor do probabilities of 1 in all.
    if ((m->keys.zeros.present() || m->values.zeros.present()) && (m->softcap != 0 || m->sink.present()))
      return *why = "zero points of keys or values, and a softcap or sinks", false;
    return true;
  }

  // DequantizeLinear of int8 rows, each number of which is worth the same in all rows of a head and a channel, or a
  // Cast of them that is scaled: the integers are read where they lie.
  StoredRows read_digits(Layout* l) const {
    const Node* n = graph_.producer(l->source);
    if (n && widens(*n)) n = graph_.producer(n->in[0]);
    if (n && n->is("Cast") && !prober_.known(n->in[0]) && graph_.values[n->in[0]].info.type == DType::kI8) {
      StoredRows rows{{l->size, 8, ScaleOf::kTensor}, Tensor::allocate(DType::kF32, {1, 1})};
      *rows.scales.view().as<float>() = std::exchange(l->scale, 1.0f);
      l->source = n->in[0];
      return rows;
    }
    if (!n || !n->is("DequantizeLinear") || n->attr_int("block_size", 0) != 0 || prober_.known(n->in[0]) ||
        graph_.values[n->in[0]].info.type != DType::kI8)
      return {};
    const Tensor scale = graph_.values[n->in[1]].constant;
    if (!scale.present()) return {};
    const Tensor zero = n->has_input(2) ? graph_.values[n->in[2]].constant : Tensor();
    if (n->has_input(2) && !zero.present()) return {};
    const std::vector<double> zeros = zero.present() ? zero.to_f64() : std::vector<double>{};
    const bool uneven = std::any_of(zeros.begin(), zeros.end(), [](double z) { return z != 0; });
    const int64_t axis = n->attr_int("axis", 1), rank = static_cast<int64_t>(shape(n->in[0]).size()),
                  at = axis < 0 ? axis + rank : axis, count = scale.count();
    const bool by_head = count > 1 && at == l->head_axis && count == l->heads,
               by_channel = count > 1 && at == l->size_axis && count == l->size;
    if (count != 1 && !by_head && !by_channel) return {};
    const auto as_floats = [&](const Tensor& numbers) {
      return row_of(floats(numbers)).reshaped({by_head ? count : 1, by_channel ? count : 1});
    };
    const ScaleOf scale_of = by_head ? ScaleOf::kHead : by_channel ? ScaleOf::kChannel : ScaleOf::kTensor;
    StoredRows rows{{l->size, 8, scale_of}, as_floats(scale)};
    if (uneven) rows.zeros = as_floats(zero);
    l->source = n->in[0];
    return rows;
  }

  // Softmax of scores with a column of constants beside them, one for each head, which is cut off afterwards: `input`
  // and `probabilities` become those of the keys.
  void take_sink(const Node& softmax, ValueId* input, ValueId* probabilities, Tensor* sink) const {
    const Node* concat = graph_.producer(*input);
    const int64_t last = static_cast<int64_t>(shape(*input).size()) - 1;
    if (!concat || !concat->is("Concat") || concat->in.size() != 2 || users_[softmax.out[0]].size() != 1 ||
        graph_.is_output(softmax.out[0]))
      return;
    if (const int64_t axis = concat->attr_int("axis", 0); axis != -1 && axis != last) return;
    const Node& cut = graph_.nodes[static_cast<size_t>(users_[softmax.out[0]][0].first)];
    for (const size_t at : {0u, 1u}) {  // of the column
      const Tensor column = by_head(concat->in[at], 3);
      if (!column.present() || !(shape(concat->in[at]).back() == Dim(1))) continue;
      for (size_t o = 0; o < cut.out.size(); ++o) {
        const ValueId keys = concat->in[1 - at];
        const std::optional<AxisPart> part =
            cut.has_output(o) && !users_[cut.out[o]].empty() ? part_of(graph_, cut, o) : std::nullopt;
        if (!part || static_cast<int64_t>(part->axis) != last || !(part->begin == Dim(at == 0)) ||
            !(shape(cut.out[o]) == shape(keys)))
          continue;
        *input = keys;
        *probabilities = cut.out[o];
        *sink = column;
        return;
      }
    }
  }

  // The numbers of a constant that has one for each head, along the axis that is `from_end` before the end; or absent.
  Tensor by_head(ValueId v, size_t from_end) const {
    for (const Node* n = graph_.producer(v); n && (n->is("Expand") || float_cast(graph_, *n)); n = graph_.producer(v))
      v = n->in[0];
    const Tensor& t = graph_.values[v].constant;
    const size_t rank = t.present() && dtype_is_float(t.type()) ? t.dims().size() : 0;
    return rank >= from_end && t.dims()[rank - from_end] == t.count() ? row_of(floats(t)) : Tensor();
  }

  // softmax(scores) V * sigmoid(logsumexp(scores) - sink): as with a column of sinks. Returns the node that is
  // replaced; `pv`, where there is no such factor.
  int take_gate(ValueId scores, int pv, Tensor* sink) const {
    const ValueId y = graph_.nodes[static_cast<size_t>(pv)].out[0];
    if (users_[y].size() != 1 || graph_.is_output(y)) return pv;
    const auto [mul, operand] = users_[y][0];
    const Node& product = graph_.nodes[static_cast<size_t>(mul)];
    if (!product.is("Mul") || !(shape(product.out[0]) == shape(y))) return pv;
    const ValueId factor = product.in[static_cast<size_t>(1 - operand)];
    const Node* n = graph_.producer(factor, "Unsqueeze");
    n = graph_.producer(n ? n->in[0] : factor, "Sigmoid");
    const Node* less = n ? graph_.producer(n->in[0], "Sub") : nullptr;
    const Node* sum = less ? graph_.producer(less->in[0], "ReduceLogSumExp") : nullptr;
    if (!sum || sum->in[0] != scores) return pv;
    Shape rows = shape(scores);
    rows.back() = Dim(1);
    const std::vector<int64_t> axes = sum->has_input(1) && graph_.values[sum->in[1]].constant.present()
                                          ? graph_.values[sum->in[1]].constant.to_i64()
                                          : sum->attr_ints("axes");
    const int64_t last = static_cast<int64_t>(rows.size()) - 1;
    const Tensor column = by_head(less->in[1], shape(less->out[0]).size() == rows.size() ? 3 : 2);
    if (axes.size() != 1 || (axes[0] != -1 && axes[0] != last) || !(shape(factor) == rows) || !column.present())
      return pv;
    *sink = column;
    return mul;
  }

  // MatMul broadcasts K (or V) along axes where it has extent 1: these must be the inner ones of those that make up the
  // heads, so that neighbouring query heads share a KV head.
  bool heads_in_groups(ValueId queries, ValueId keys) const {
    const std::vector<int64_t> q = prober_.dims(queries, tokens_, past_), k = prober_.dims(keys, tokens_, past_);
    bool shared = false;
    for (size_t i = 0; i + 2 < q.size(); ++i) {
      const size_t missing = q.size() - std::min(q.size(), k.size());
      const int64_t own = i < missing ? 1 : k[i - missing];
      if (own == 1 && q[i] > 1)
        shared = true;
      else if (own != q[i] || (own > 1 && shared))
        return false;
    }
    return k.size() <= q.size();
  }

  // The MatMul whose operand 0 is the probabilities, through nodes with one data path.
  int find_product(ValueId v) const {
    for (int hops = 0; hops < 8; ++hops) {
      int next = -1;
      for (const auto& [u, operand] : users_[v]) {
        const Node& n = graph_.nodes[u];
        if (n.is("MatMul") && operand == 0) return u;
        if (n.is("IsNaN")) continue;  // the NaN repair Where(IsNaN(p), 0, p) uses p twice
        next = u;
      }
      if (next < 0 || graph_.nodes[next].out.size() != 1) return -1;
      v = graph_.nodes[next].out[0];
    }
    return -1;
  }

  bool identity_between(ValueId root, ValueId leaf) {
    if (root == leaf) return true;
    const auto cone = prober_.cone(root, leaf, kMaxConeNodes);
    if (!cone || !std::all_of(cone->nodes.begin(), cone->nodes.end(), [&](int i) { return steady(graph_.nodes[i]); }))
      return false;
    const Tensor p = prober_.random(prober_.dims(leaf, tokens_, past_), 3);
    Result<Tensor> r = prober_.evaluate(root, {{leaf, p}}, tokens_, past_);
    return r.is_ok() && floats(*r) == floats(p);
  }

  // The earliest value that `operand` of a product is a re-arrangement of, and how its axes map.
  // `transposed`: the operand is [.., size, rows] (K), else [.., rows, size].
  bool layout(ValueId operand, bool transposed, Layout* result) {
    std::vector<ValueId> candidates = prober_.dominators(operand, kMaxConeNodes);
    candidates.insert(candidates.begin(), operand);
    bool any = false;
    for (ValueId source : candidates) {
      Layout l;
      l.source = source;
      if (!map_axes(operand, transposed, &l)) {
        // A Reshape in between may be undone further up; compute is not.
        const int p = graph_.values[source].producer;
        if (p < 0 || graph_.nodes[p].def->placement == Placement::kCompute ||
            graph_.nodes[p].def->placement == Placement::kUpdate)
          break;
        continue;
      }
      *result = l;
      any = true;
    }
    return any;
  }

  // No operand but shapes changes with the step, and no part is cut off that is nothing at the probed step.
  bool steady(const Node& n) const {
    if (!n.def || (n.is("Slice") && !(shape(n.in[0]) == shape(n.out[0])))) return false;
    if (n.is("Split") && n.has_input(1) && prober_.changes(n.in[1])) return false;
    return n.def->placement == Placement::kView ||
           std::none_of(n.in.begin(), n.in.end(), [&](ValueId v) { return prober_.changes(v); });
  }

  bool only_movement(const Cone& cone) const {
    for (int i : cone.nodes)
      if (!steady(graph_.nodes[i]) ||
          (graph_.nodes[i].def->placement != Placement::kView && !widens(graph_.nodes[i]) && !repeats(graph_.nodes[i])))
        return false;
    return true;
  }

  // Repeats or picks heads, or parts of them: of every row the same, as the axis has the same extent at every step.
  bool repeats(const Node& n) const {
    if (n.is("Tile")) {
      const Shape &x = shape(n.in[0]), &y = shape(n.out[0]);
      for (size_t i = 0; i < x.size(); ++i)
        if (!(x[i] == y[i]) && !(x[i].is_const() && y[i].is_const())) return false;
      return x.size() == y.size();
    }
    if (!n.is("Concat") && !(n.is("Gather") && graph_.values[n.in[1]].constant.present())) return false;
    const int64_t axis = n.attr_int("axis", 0), rank = static_cast<int64_t>(shape(n.in[0]).size()),
                  at = axis < 0 ? axis + rank : axis;
    return at >= 0 && at < rank &&
           std::all_of(
               n.in.begin(), n.is("Gather") ? n.in.begin() + 1 : n.in.end(),
               [&](ValueId v) {
                 return shape(v).size() == static_cast<size_t>(rank) && shape(v)[static_cast<size_t>(at)].is_const();
               });
  }

  // A cast to float of stored half-precision rows, which the kernel reads as they are.
  bool widens(const Node& n) const {
    return n.is("Cast") && is_half(n.in[0]) && graph_.values[n.out[0]].info.type == DType::kF32;
  }
  bool is_half(ValueId v) const {
    const DType t = graph_.values[v].info.type;
    return t == DType::kF16 || t == DType::kBF16;
  }

  // Element numbers of the source as they arrive at the operand, through view operators of any type.
  bool numbers_moved(ValueId operand, ValueId source, const std::vector<int64_t>& dims, std::vector<int64_t>* index) {
    Tensor iota = Tensor::allocate(DType::kI64, dims);
    for (int64_t i = 0; i < iota.count(); ++i) iota.view().as<int64_t>()[i] = i;
    Result<Tensor> r = prober_.evaluate(operand, {{source, iota}}, tokens_, past_);
    if (!r.is_ok()) return false;
    // As float behind a widening cast: exact, map_axes probes fewer than 2^24 elements.
    if (r->type() == DType::kI64)
      *index = r->to_i64();
    else
      for (double number : r->to_f64()) index->push_back(static_cast<int64_t>(number));
    return true;
  }

  bool only_scaling(const Cone& cone) const {
    for (int i : cone.nodes) {
      const Node& n = graph_.nodes[i];
      if (!steady(n) || (n.def->placement != Placement::kView && !float_cast(graph_, n) && !scales(graph_, prober_, n)))
        return false;
    }
    return true;
  }

  // The same where a common factor is multiplied in: it is read from a second evaluation, on ones.
  bool numbers_scaled(ValueId operand, Layout* l, const std::vector<int64_t>& dims, std::vector<int64_t>* index) {
    if (graph_.values[l->source].info.type != DType::kF32 && !is_half(l->source)) return false;
    Tensor ones = Tensor::allocate(DType::kF32, dims), iota = Tensor::allocate(DType::kF32, dims);
    for (int64_t i = 0; i < iota.count(); ++i) {
      ones.view().as<float>()[i] = 1.0f;
      iota.view().as<float>()[i] = static_cast<float>(i);
    }
    Result<Tensor> a = prober_.evaluate(operand, {{l->source, ones}}, tokens_, past_);
    Result<Tensor> b = prober_.evaluate(operand, {{l->source, iota}}, tokens_, past_);
    if (!a.is_ok() || !b.is_ok() || a->type() != DType::kF32 || a->count() == 0 || a->count() != b->count())
      return false;
    l->scale = a->view().as<float>()[0];
    if (l->scale == 0) return false;
    for (int64_t i = 0; i < b->count(); ++i) {
      if (a->view().as<float>()[i] != l->scale) return false;
      const float e = b->view().as<float>()[i] / l->scale;
      if (std::fabs(e - std::round(e)) > 0.01f) return false;
      index->push_back(static_cast<int64_t>(std::round(e)));
    }
    return true;
  }

  // What stands between a value and its source, in words: equal where the same movement leads from one to the other.
  // Empty: something in it is not known by its name and numbers.
  std::string movement(ValueId operand, ValueId source, bool transposed) const {
    static const std::set<std::string> kKnown{"Transpose", "Reshape", "Squeeze", "Unsqueeze", "Identity", "Mul", "Div"};
    std::map<ValueId, std::string> names{{source, "x"}};
    std::string text = transposed ? "t" : "";
    for (const ValueId v : {source, operand})
      text += std::string(" ") + dtype_name(graph_.values[v].info.type) + shape_str(shape(v));
    if (operand == source) return text;
    const auto cone = prober_.cone(operand, source, kMaxConeNodes);
    if (!cone) return "";
    for (const int i : cone->nodes) {
      const Node& n = graph_.nodes[i];
      if (!n.domain.empty() || !kKnown.count(n.op) || n.out.size() != 1) return "";
      bool known = true;
      text += "; " + node_key(n, [&](ValueId v) {
                if (const auto it = names.find(v); it != names.end()) return it->second;
                const std::string numbers = numbers_key(graph_.values[v]);
                known = known && !numbers.empty();
                return numbers;
              });
      if (!known) return "";
      names.emplace(n.out[0], std::to_string(names.size()));
    }
    return text + " -> " + (names.count(operand) ? names[operand] : "x");
  }

  // Layers are alike: what one of them tells of an encoder's thousands of rows is not probed again.
  bool map_axes(ValueId operand, bool transposed, Layout* l) {
    const ValueId source = l->source;
    const std::vector<int64_t> dims = prober_.dims(source, tokens_, past_);
    int64_t count = 1;
    for (const int64_t d : dims) count *= d;
    const std::string key = count > kManyNumbers ? movement(operand, source, transposed) : "";
    if (key.empty()) return probe_axes(operand, transposed, l);
    if (const auto it = layouts_.find(key); it != layouts_.end()) {
      if (it->second) *l = *it->second, l->source = source;
      return it->second.has_value();
    }
    const bool maps = probe_axes(operand, transposed, l);
    layouts_[key] = maps ? std::optional(*l) : std::nullopt;
    return maps;
  }

  bool probe_axes(ValueId operand, bool transposed, Layout* l) {
    std::vector<int64_t> out = prober_.dims(operand, tokens_, past_);
    const std::vector<int64_t> in = prober_.dims(l->source, tokens_, past_);
    const auto cone = prober_.cone(operand, l->source, kMaxConeNodes);
    if (out.size() < 2 || (operand != l->source && !cone)) return false;
    const int64_t last = out.back(), before = out[out.size() - 2];
    const int64_t rows = transposed ? last : before, size = transposed ? before : last;
    int64_t heads = 1;
    for (size_t i = 0; i + 2 < out.size(); ++i) heads *= out[i];
    int64_t elements = 1;
    for (int64_t d : in) elements *= d;
    std::vector<int64_t> index;
    const bool moved = operand == l->source || (cone && only_movement(*cone));
    if (elements == 0 || elements > (1 << 22) ||
        !(moved ? numbers_moved(operand, l->source, in, &index)
                : cone && only_scaling(*cone) && numbers_scaled(operand, l, in, &index)))
      return false;
    if (static_cast<int64_t>(index.size()) != heads * rows * size) return false;
    auto at = [&](int64_t h, int64_t r, int64_t d) {
      return index[static_cast<size_t>(h * rows * size + (transposed ? d * rows + r : r * size + d))];
    };
    int64_t group = 1;
    while (group < heads && at(group, 0, 0) == at(0, 0, 0)) ++group;
    const int64_t head_stride = group < heads ? at(group, 0, 0) - at(0, 0, 0) : 0;
    const int64_t row_stride = rows > 1 ? at(0, 1, 0) - at(0, 0, 0) : 0,
                  size_stride = size > 1 ? at(0, 0, 1) - at(0, 0, 0) : 0;
    if (heads % group != 0 || (heads / group) * rows * size != elements) return false;
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t d = 0; d < size; ++d)
          if (at(h, r, d) != (h / group) * head_stride + r * row_stride + d * size_stride) return false;
    l->heads = heads / group;
    l->size = size;
    // Axes of the source by their stride in its own order.
    int64_t stride = 1;
    for (int i = static_cast<int>(in.size()) - 1; i >= 0; --i) {
      if (in[i] > 1) {
        if (l->heads > 1 && stride == head_stride && in[i] == l->heads)
          l->head_axis = i;
        else if (stride == row_stride && in[i] == rows)
          l->row_axis = i;
        else if (stride == size_stride && in[i] == size)
          l->size_axis = i;
        else
          return false;
      }
      stride *= in[i];
    }
    return (l->row_axis >= 0 || rows == 1) && (l->size_axis >= 0 || size == 1);
  }

  // [1, heads, rows, size] as a view of the source.
  ValueId arrange(Builder& b, const Layout& l) {
    const Shape s = shape(l.source);
    std::vector<int64_t> perm;
    for (size_t i = 0; i < s.size(); ++i) {
      const int a = static_cast<int>(i);
      if (a != l.head_axis && a != l.row_axis && a != l.size_axis) perm.push_back(a);
    }
    for (int a : {l.head_axis, l.row_axis, l.size_axis})
      if (a >= 0) perm.push_back(a);
    bool sorted = true;
    for (size_t i = 0; i < perm.size(); ++i) sorted = sorted && perm[i] == static_cast<int64_t>(i);
    const ValueId v = sorted ? l.source : b.transpose(l.source, perm);
    const Shape target{Dim(1), Dim(l.heads), l.row_axis < 0 ? Dim(1) : s[static_cast<size_t>(l.row_axis)], Dim(l.size)};
    if (sorted && s == target) return v;
    return b.op("Reshape", {v, graph_.add_shape("dims", target)});
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
      builder.start(nodes[n]);
      ValueId q = arrange(builder, m.q), k = arrange(builder, m.k), v = arrange(builder, m.v);
      const DType made = graph_.values[m.q.source].info.type;
      q = scale_rows(graph_, builder, q, m.keys, m.q.heads, made);
      ValueId slopes = kNoValue;
      if (!m.mask.slopes.empty()) slopes = graph_.add_constant(nodes[n].name + "/slopes", row_of(m.mask.slopes));
      const ValueId sink = m.sink.present() ? graph_.add_constant(nodes[n].name + "/sink", m.sink) : kNoValue;
      const ValueId result = nodes[n].out[0];
      const ValueId distance = m.distance ? scores_.distances().constant(graph_, *m.distance) : kNoValue;
      ValueId y = builder.op("Attention", {q, k, v, m.bias, slopes, sink, distance}, kNoValue, "situ");
      Node& a = builder.last();
      if (distance != kNoValue) a.set_int("least_distance", m.distance->least);
      a.set_float("scale", m.scale);
      a.set_float("softcap", m.softcap);
      a.set_int("causal", m.mask.causal);
      a.set_int("window", m.mask.window);
      set_state_encoding(&a, 1, m.keys.form);
      set_state_encoding(&a, 2, m.values.form);
      y = less_zeros(graph_, builder, y, m.values, m.q.heads, made);
      y = scale_rows(graph_, builder, y, m.values, m.q.heads, made);
      // The product with V may have been computed in another type than Q, K and V are in (half with casts around).
      const DType wanted = graph_.values[result].info.type;
      const ValueId rows =
          builder.op("Reshape", {y, graph_.add_shape("dims", shape(result))}, made == wanted ? result : kNoValue);
      if (made != wanted) {
        builder.op("Cast", {rows}, result);
        builder.last().set_int("to", static_cast<int64_t>(wanted));
      }
      describe(m.softmax, m);
    }
    SITU_RETURN_IF_ERROR(builder.finish());
    graph_.remove_dead_nodes();
    return infer_shapes(context_);
  }

  void describe(const std::string& where, const Match& m) {
    std::string text = std::to_string(m.q.heads) + " heads";
    if (m.k.heads != m.q.heads) text += " over " + std::to_string(m.k.heads) + " KV heads";
    text += " of " + std::to_string(m.q.size);
    if (m.mask.causal) text += ", causal";
    if (m.mask.window > 0) text += ", window " + std::to_string(m.mask.window);
    if (!m.mask.slopes.empty()) text += ", ALiBi";
    if (m.softcap > 0) text += ", softcap " + std::to_string(m.softcap);
    if (m.distance) text += ", bias by distance";
    if (m.sink.present()) text += ", sinks";
    if (m.bias != kNoValue) text += ", mask computed";
    if (!m.keys.form.plain() || !m.values.form.plain()) text += ", keys and values as integers";
    context_.note("attention", where, text);
  }

  // K and V that reach a fused operator as repeated heads (repeat_kv in the graph) are read unrepeated.
  Status drop_repeats() {
    prober_ = Prober(graph_, context_.binding, context_.evaluator);
    std::map<int, std::pair<Layout, Layout>> found;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      Layout k, v;
      if (!node.is("Attention", "situ") || !layout(node.in[1], false, &k) || !layout(node.in[2], false, &v)) continue;
      if (k.heads == shape(node.in[1])[1].value() || k.heads != v.heads || k.scale != 1 || v.scale != 1) continue;
      found.emplace(static_cast<int>(n), std::make_pair(k, v));
    }
    if (found.empty()) return Status::ok();
    Builder builder(graph_);
    std::vector<Node> nodes = std::exchange(graph_.nodes, {});
    for (size_t n = 0; n < nodes.size(); ++n) {
      auto it = found.find(static_cast<int>(n));
      if (it != found.end()) {
        builder.start(nodes[n]);
        nodes[n].in[1] = arrange(builder, it->second.first);
        nodes[n].in[2] = arrange(builder, it->second.second);
        context_.note("repeated heads", nodes[n].name, std::to_string(it->second.first.heads) + " KV heads");
      }
      builder.keep(std::move(nodes[n]));
    }
    SITU_RETURN_IF_ERROR(builder.finish());
    graph_.remove_dead_nodes();
    return Status::ok();
  }

  // What is added to scores as an operand, and what of it is added by distance.
  struct Added {
    std::optional<MaskForm> form;  // of the rest; nothing: it has none
    Addends addends;
  };

  Added closed_form(Prober& prober, DistanceBiases& distances, const Node& n, int64_t heads) {
    const ValueId bias = n.in[3];
    const Shape scores{Dim(1), shape(n.in[0])[1], shape(n.in[0])[2], shape(n.in[1])[2]};
    const auto fit = [&](const std::vector<ValueId>& rules,
                         const std::vector<ValueId>& left_out) -> std::optional<MaskForm> {
      if (!(scores[3] == scores[2] + Dim::symbol(kSymP))) return std::nullopt;
      return fit_mask(graph_, prober, rules, mask_probe(prober, bias, heads, left_out), heads, context_.context_length,
                      context_.phase);
    };
    Added added{fit({bias}, {}), {}};
    if (added.form) return added;
    added.addends = distances.split({bias}, scores);
    const std::vector<ValueId>& rest = added.addends.rest;
    const auto& distance = added.addends.distance;
    if (rest.empty()) {
      // One number, which Softmax does not see, unless it hides all keys.
      const auto all = mask_probe(prober, bias, heads, added.addends.by_distance())(tokens_, past_);
      if (all.is_ok() && !all->empty() && all->front() > kMasked) added.form = MaskForm{};
    } else if (distance) {
      added.form = fit(rest, distance->values);
    }
    if (distance && distance->hides_future) {
      if (!added.form) return {};
      added.form->causal = true;
    }
    const bool future =
        n.attr_int("causal", 0) == 0 && !(added.form && added.form->causal) && context_.phase != Phase::kDecode;
    if (distance && ((future && !distance->of_future) || (!added.form && rest.size() != 1))) return {};
    return added;
  }

  // Masks given as an operand (MultiHeadAttention, ai.onnx.Attention) get their closed form too.
  Status simplify_masks() {
    Prober prober(graph_, context_.binding, context_.evaluator);
    DistanceBiases distances(context_, prober);
    std::map<std::tuple<ValueId, int64_t, bool>, Added> known;  // layers share masks
    for (Node& n : graph_.nodes) {
      if (!n.is("Attention", "situ") || !n.has_input(3)) continue;
      const ValueId bias = n.in[3];
      // A sink feels what is added to a whole row, which closed forms leave out.
      if (!prober.known(bias) || n.has_input(5) || n.has_input(6) || n.attr_int("smooth_sink", 0) != 0) continue;
      const int64_t heads = shape(n.in[0])[1].value();
      auto [it, fresh] = known.try_emplace({bias, heads, n.attr_int("causal", 0) != 0});
      if (fresh) it->second = closed_form(prober, distances, n, heads);
      const Added& added = it->second;
      if (added.addends.distance && added.addends.distance->matters()) {
        n.in.resize(7, kNoValue);
        n.in[6] = distances.constant(graph_, *added.addends.distance);
        n.set_int("least_distance", added.addends.distance->least);
        if (!added.form) n.in[3] = added.addends.rest.front();
        context_.note("mask", n.name, "bias by distance");
      }
      if (!added.form) continue;
      const MaskForm& form = *added.form;
      const bool causal = n.attr_int("causal", 0) != 0;
      const int64_t window = n.attr_int("window", -1);
      if (window > 0 && form.window > 0) continue;
      n.in[3] = kNoValue;
      n.set_int("causal", causal || form.causal);
      if (form.window > 0) n.set_int("window", form.window);
      if (!form.slopes.empty()) {
        if (n.has_input(4)) return Status::error(n.label() + ": two sets of ALiBi slopes");
        n.in[4] = graph_.add_constant(n.name + "/slopes", row_of(form.slopes));
      }
      context_.note("mask", n.name,
                    std::string(form.causal ? "causal" : "all") +
                        (form.window > 0 ? ", window " + std::to_string(form.window) : "") +
                        (form.slopes.empty() ? "" : ", ALiBi"));
    }
    graph_.remove_dead_nodes();
    return Status::ok();
  }

  // Broadcasts a host mask of rank <= 4 to [heads, S, T]; bool masks become 0 / -inf.
  // `left_out`: parts of it that are 0.
  MaskProbe mask_probe(Prober& prober, ValueId bias, int64_t heads, const std::vector<ValueId>& left_out) const {
    return [&prober, bias, heads, left_out](int64_t tokens, int64_t past) -> Result<std::vector<float>> {
      std::map<ValueId, Tensor> leaves;
      for (ValueId v : left_out) leaves[v] = Tensor::allocate(DType::kF32, prober.dims(v, tokens, past));
      Result<Tensor> t = prober.evaluate(bias, leaves, tokens, past);
      if (!t.is_ok()) return t.status();
      const bool boolean = t->type() == DType::kBool;
      if (!boolean && !dtype_is_float(t->type())) return Status::error("not a mask type");
      const std::vector<double> x = t->to_f64();
      std::vector<int64_t> dims = t->dims();
      while (dims.size() < 4) dims.insert(dims.begin(), 1);
      const int64_t keys = tokens + past;
      if (dims[0] != 1 || (dims[1] != 1 && dims[1] != heads) || (dims[2] != 1 && dims[2] != tokens) ||
          (dims[3] != 1 && dims[3] != keys))
        return Status::error("not a mask shape");
      std::vector<float> out;
      out.reserve(static_cast<size_t>(heads * tokens * keys));
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t i = 0; i < tokens; ++i)
          for (int64_t j = 0; j < keys; ++j) {
            const int64_t k =
                ((dims[1] == 1 ? 0 : h) * dims[2] + (dims[2] == 1 ? 0 : i)) * dims[3] + (dims[3] == 1 ? 0 : j);
            const double v = x[static_cast<size_t>(k)];
            out.push_back(boolean ? (v != 0 ? 0.0f : -INFINITY) : static_cast<float>(v));
          }
      return out;
    };
  }

  PassContext& context_;
  Graph& graph_;
  Prober prober_;
  std::vector<std::vector<std::pair<int, int>>> users_;
  const int64_t tokens_, past_;                           // of the probed step
  std::map<std::string, std::optional<Layout>> layouts_;  // by movement
  ScoreRecogniser scores_;
};

}  // namespace

Status recognise_attention(PassContext& context) { return Recogniser(context).run(); }

}  // namespace situ
