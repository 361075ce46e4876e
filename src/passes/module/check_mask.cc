// The attention mask became ones because of its name (bind_inputs). This looks at what it does: ones must let a token
// see itself, or the mask is one of what to hide. Of a name that is not the usual one, a zero must take its key away as
// well.
#include <set>

#include "passes/context/pass_context.h"
#include "passes/host/mask.h"
#include "passes/host/probe.h"
#include "passes/module/passes.h"

namespace situ {
namespace {

constexpr int kMaxConeNodes = 64;

class MaskCheck {
 public:
  explicit MaskCheck(PassContext& context)
      : context_(context),
        graph_(context.graph),
        mask_(context.binding.mask.value),
        prober_(context.graph, context.binding, context.evaluator),
        tokens_(context.probe_tokens()),
        past_(context.probe_past()) {}

  Status run() {
    find_dependents();
    bool taken = false;
    for (const Node& n : graph_.nodes) {
      const bool fused = n.is("Attention", "situ") && n.has_input(3);
      if (!fused && !n.is("Softmax")) continue;
      std::optional<Row> row = fused ? last_row(n.in[3], kNoValue) : scored_row(n);
      if (!row) continue;
      if (row->own_hidden)
        return Status::error("input '" + name() + "' has no known meaning: where it is 1, " + n.label() +
                             " sees nothing, so that it is no mask of what to attend to");
      taken = taken || row->key_taken;
    }
    if (!taken && !context_.binding.mask.told)
      return Status::error("input '" + name() +
                           "' has no known meaning: it is called a mask, and a 0 in it takes no key from an attention");
    if (!context_.binding.mask.told) context_.note("attention mask", name(), "a 0 in it takes a key away");
    return Status::ok();
  }

 private:
  // What the last token of a step sees.
  struct Row {
    bool own_hidden = false;  // not itself, where the mask is all ones
    bool key_taken = false;   // not the key before it, where the mask is 0 there, and only there
  };

  const std::string& name() const { return graph_.values[mask_].name; }

  void find_dependents() {
    dependents_.insert(mask_);
    for (const Node& n : graph_.nodes)
      for (ValueId v : n.in)
        if (dependents_.count(v)) dependents_.insert(n.out.begin(), n.out.end());
  }

  // Of Softmax's input where all scores are 0.
  std::optional<Row> scored_row(const Node& softmax) {
    const ValueId x = softmax.in[0];
    if (!dependents_.count(x)) return std::nullopt;
    const ValueId scores = prober_.scores(softmax, kMaxConeNodes);
    if (scores == kNoValue || !prober_.cone(x, scores, kMaxConeNodes)) return std::nullopt;
    return last_row(x, scores);
  }

  // Of a mask [.., tokens, keys] that is added or, of bool, kept.
  std::optional<Row> last_row(ValueId bias, ValueId scores) {
    if (!dependents_.count(bias)) return std::nullopt;
    const std::vector<int64_t> shown = prober_.dims(mask_, tokens_, past_);
    const int64_t keys = shown.empty() ? 0 : shown.back();
    if (keys < 2) return std::nullopt;
    const auto values = [&](bool zero) -> std::optional<std::vector<float>> {
      const Result<Tensor> mask = prober_.evaluate(mask_, {}, tokens_, past_);  // a tensor of its own
      if (!mask.is_ok() || mask->count() != keys) return std::nullopt;
      const int64_t bytes = dtype_bytes(mask->type());
      for (int64_t i = (keys - 2) * bytes; zero && i < (keys - 1) * bytes; ++i) mask->view().data[i] = std::byte{0};
      std::map<ValueId, Tensor> leaves{{mask_, *mask}};
      if (scores != kNoValue)
        leaves[scores] = Tensor::allocate(graph_.values[scores].info.type, prober_.dims(scores, tokens_, past_));
      const Result<Tensor> r = prober_.evaluate(bias, leaves, tokens_, past_);
      if (!r.is_ok() || r->rank() < 1 || r->dims().back() != keys) return std::nullopt;
      const std::vector<float> all = floats(*r);
      std::vector<float> row(all.end() - keys, all.end());
      if (r->type() == DType::kBool)
        for (float& f : row) f = f != 0 ? 0.0f : 2 * kMasked;
      return row;
    };
    const auto one = values(false), zero = values(true);
    if (!one || !zero) return std::nullopt;
    const size_t own = static_cast<size_t>(keys) - 1, before = own - 1;
    const auto hidden = [](float f) { return !(f > kMasked); };
    return Row{hidden((*one)[own]), !hidden((*one)[before]) && hidden((*zero)[before]) && !hidden((*zero)[own])};
  }

  PassContext& context_;
  const Graph& graph_;
  const ValueId mask_;
  Prober prober_;
  const int64_t tokens_, past_;  // of the step that is looked at
  std::set<ValueId> dependents_;
};

}  // namespace

Status check_mask(PassContext& context) {
  const ValueId mask = context.binding.mask.value;
  if (mask == kNoValue || context.graph.values[mask].producer < 0) return Status::ok();
  return MaskCheck(context).run();
}

}  // namespace situ
