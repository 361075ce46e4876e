#include "eval/interpreter.h"

#include <algorithm>

#include "base/assign.h"
#include "ops/infer.h"

namespace situ {
namespace {

View concrete(const SymView& view, const View& source) {
  View v;
  v.type = source.type;
  v.rank = static_cast<int>(view.dims.size());
  for (int i = 0; i < v.rank; ++i) {
    v.dims[i] = view.dims[i].value();
    v.strides[i] = view.strides[i].value();
  }
  v.data = source.data + view.offset.value() * dtype_bytes(source.type);
  return v;
}

std::vector<int64_t> joined(std::vector<int64_t> dims, int64_t places) {
  dims.insert(dims.begin(), places);
  return dims;
}

// One row of the first axis.
View at_place(View v, int64_t place) {
  v.data += place * v.strides[0] * dtype_bytes(v.type);
  v.dims[0] = 1;
  return v;
}

// States are handed on from one place of the scan inputs to the next; what else the body gives is joined.
template <typename Body>
Result<std::vector<Tensor>> scan(const Node& node, const std::vector<Tensor>& operands, Evaluator& evaluator,
                                 int64_t most_bytes, Body body) {
  const Attribute* const a = node.attr("body");
  const int64_t scanned = node.attr_int("num_scan_inputs", 0);
  if (!a || !a->graph || scanned < 1 || scanned > static_cast<int64_t>(operands.size()) ||
      a->graph->inputs.size() != operands.size() || a->graph->outputs.size() != node.out.size() ||
      node.out.size() + static_cast<size_t>(scanned) < operands.size())
    return Status::error(node.label() + ": its operands and results are not those of its body");
  for (const char* name : {"scan_input_axes", "scan_input_directions", "scan_output_axes", "scan_output_directions"})
    for (const int64_t i : node.attr_ints(name))
      if (i != 0) return Status::error(node.label() + ": only a " + name + " of 0 is supported");
  const size_t states = operands.size() - static_cast<size_t>(scanned);
  std::vector<Tensor> results(operands.begin(), operands.begin() + static_cast<int64_t>(states));
  results.resize(node.out.size());
  const int64_t places = operands[states].rank() > 0 ? operands[states].dims()[0] : 0;
  for (int64_t place = 0; place < places; ++place) {
    std::map<ValueId, Tensor> feeds;
    for (size_t i = 0; i < operands.size(); ++i) {
      Tensor& x = feeds[a->graph->inputs[i]];
      x = i < states ? results[i] : operands[i];
      if (i < states) continue;
      std::vector<int64_t> dims = x.dims();
      if (dims.empty() || dims[0] != places)
        return Status::error(node.label() + ": its scan inputs have different numbers of rows");
      dims.erase(dims.begin());
      const Tensor row = Tensor::allocate(x.type(), dims);
      evaluator.move(row.reshaped(joined(dims, 1)).view(), at_place(x.view(), place));
      x = row;
    }
    SITU_TAKE(made, body(*a->graph, std::move(feeds)));
    for (size_t i = 0; i < made.size(); ++i) {
      if (i < states) {
        results[i] = made[i];
        continue;
      }
      if (place == 0) {
        if (made[i].bytes() > most_bytes / places)
          return Status::error(node.label() + ": what it joins is larger than " + std::to_string(most_bytes) +
                               " bytes");
        results[i] = Tensor::allocate(made[i].type(), joined(made[i].dims(), places));
      } else if (results[i].dims() != joined(made[i].dims(), places) || results[i].type() != made[i].type()) {
        return Status::error(node.label() + ": its body gives results of different shapes");
      }
      evaluator.move(at_place(results[i].view(), place), made[i].reshaped(joined(made[i].dims(), 1)).view());
    }
  }
  if (places == 0) return Status::error(node.label() + ": its scan inputs have no rows");
  return results;
}

}  // namespace

ValueInfo info_of(const Tensor& tensor) {
  ValueInfo info;
  info.type = tensor.type();
  info.ranked = true;
  for (int64_t d : tensor.dims()) info.shape.push_back(d);
  const bool integer = info.type == DType::kI64 || info.type == DType::kI32 || info.type == DType::kBool;
  if (integer && tensor.rank() <= 1 && tensor.count() <= kMaxContent) {
    info.content.emplace();
    for (int64_t x : tensor.to_i64()) info.content->push_back(x);
  }
  return info;
}

std::optional<std::vector<Dim>> content_of(const Graph& graph, const Node& node, size_t i) {
  if (!node.has_input(i)) return std::nullopt;
  const Value& v = graph.values[node.in[i]];
  return v.constant.present() ? info_of(v.constant).content : v.info.content;
}

std::optional<std::vector<int64_t>> fixed_integers(const Graph& graph, ValueId v) {
  const Value& value = graph.values[v];
  return value.constant.present() ? value.constant.to_i64() : known_i64(&value.info, nullptr);
}

Evaluator::Evaluator(ThreadPool& pool, int64_t max_bytes)
    : pool_(pool), max_bytes_(max_bytes), scratch_(kThreadScratchBytes, pool.threads()) {}

Status Evaluator::allocate(const Node& node, const ValueInfo& info, Tensor* out) const {
  int64_t bytes = std::max<int64_t>(1, dtype_bytes(info.type));
  std::vector<int64_t> dims;
  for (const Dim& d : info.shape) {
    if (!d.is_const() || d.value() < 0 || __builtin_mul_overflow(bytes, std::max<int64_t>(1, d.value()), &bytes) ||
        bytes > max_bytes_)
      return Status::error(node.label() + ": output of shape " + shape_str(info.shape) + " is larger than " +
                           std::to_string(max_bytes_) + " bytes");
    dims.push_back(d.value());
  }
  *out = Tensor::allocate(info.type, dims);
  return Status::ok();
}

void Evaluator::move(const View& dst, const View& src) {
  std::vector<Ledger> books(pool_.threads());
  pool_.run([&](int t, int n) {
    KernelCall call;
    call.in = &src;
    call.out = &dst;
    call.in_count = call.out_count = 1;
    call.ledger = &books[t];
    kernels().move(call, t, n);
  });
  for (const Ledger& b : books) ledger_.add(b);
}

Status Evaluator::compute(const Node& node, const std::vector<Tensor>& operands, const std::vector<ValueInfo>& infos,
                          std::vector<Tensor>* outputs) {
  std::vector<ValueInfo> in_infos(operands.size());
  PrepareContext prepare{node, {}, {}, {}};
  for (size_t i = 0; i < operands.size(); ++i) {
    in_infos[i] = operands[i].present() ? info_of(operands[i]) : ValueInfo{};
    prepare.in.push_back(operands[i].present() ? &in_infos[i] : nullptr);
    prepare.constants.push_back(operands[i].present() ? &operands[i] : nullptr);
  }
  for (size_t i = 0; i < infos.size(); ++i) prepare.out.push_back(node.has_output(i) ? &infos[i] : nullptr);
  if (!node.def->prepare) return Status::error(node.label() + ": no kernel for this operator");
  Prepared prepared;
  SITU_RETURN_IF_ERROR(node.def->prepare(prepare, &prepared));
  std::vector<View> in(operands.size()), out(infos.size());
  for (size_t i = 0; i < operands.size(); ++i) in[i] = operands[i].view();
  for (size_t i = 0; i < infos.size(); ++i) {
    if (!node.has_output(i)) continue;
    SITU_RETURN_IF_ERROR(allocate(node, infos[i], &(*outputs)[i]));
    out[i] = (*outputs)[i].view();
    ledger_.computed += (*outputs)[i].bytes();
  }
  const KernelFn kernel = kernels().*prepared.kernel;
  std::vector<Ledger> books(pool_.threads());
  std::vector<Fault> faults(pool_.threads());
  pool_.run([&](int t, int n) {
    KernelCall call;
    call.in = in.data();
    call.in_count = static_cast<int>(in.size());
    call.out = out.data();
    call.out_count = static_cast<int>(out.size());
    call.params = prepared.params.get();
    call.scratch = scratch_.of(t);
    call.ledger = &books[t];
    call.fault = &faults[t];
    kernel(call, t, n);
  });
  for (const Ledger& b : books) {
    ledger_.add(b);
    ledger_.computed -= b.copied;  // a moving kernel's output is not also a computed one
  }
  for (const Fault& f : faults)
    if (f.what)
      return Status::error(node.label() + ": " + f.what + " (" + std::to_string(f.value) + ", limit " +
                           std::to_string(f.limit) + ")");
  return Status::ok();
}

Result<Tensor> Evaluator::cast(const Tensor& x, DType type) {
  if (x.type() == type) return x;
  Node cast;
  cast.op = cast.name = "Cast";
  cast.opset = 13;
  cast.in = cast.out = {0};
  cast.set_int("to", static_cast<int64_t>(type));
  cast.def = find_op("", "Cast", 13);
  Result<std::vector<Tensor>> made = node(cast, {x});
  if (!made.is_ok()) return made.status();
  return (*made)[0];
}

Result<std::vector<Tensor>> Evaluator::node(const Node& node, const std::vector<Tensor>& operands) {
  if (!node.def) return Status::error(node.label() + ": unknown operator");
  if (node.def->placement == Placement::kControl) return control(node, operands);
  if (node.is("Select", "situ")) {
    if (operands.size() != 3 || operands[0].count() != 1)
      return Status::error(node.label() + ": the condition is not one value");
    return std::vector<Tensor>{operands[operands[0].to_i64()[0] ? 1 : 2]};
  }
  std::vector<ValueInfo> in_infos(operands.size());
  std::vector<ValueInfo> infos(node.out.size());
  InferContext infer{node, {}, {}, infos};
  for (size_t i = 0; i < operands.size(); ++i) {
    in_infos[i] = operands[i].present() ? info_of(operands[i]) : ValueInfo{};
    infer.in.push_back(operands[i].present() ? &in_infos[i] : nullptr);
    infer.constants.push_back(operands[i].present() ? &operands[i] : nullptr);
  }
  SITU_RETURN_IF_ERROR(node.def->infer(infer));
  std::vector<Tensor> outputs(node.out.size());
  for (size_t i = 0; i < infos.size(); ++i)
    if (node.has_output(i) && (!infos[i].ranked || !shape_is_const(infos[i].shape)))
      return Status::error(node.label() + ": the shape of output " + std::to_string(i) + " is not known");

  if (node.def->placement == Placement::kView) {
    ViewContext view{node, infer.in, infer.constants, {}, SymView::contiguous(in_infos[0].shape), {}};
    for (ValueInfo& i : infos) view.out.push_back(&i);
    if (!node.def->view(view)) return Status::error(node.label() + ": cannot be expressed as a view");
    for (size_t i = 0; i < infos.size(); ++i) {
      if (!node.has_output(i)) continue;
      const View source = concrete(view.result[i], operands[0].view());
      if (source.contiguous() && source.count() == operands[0].count()) {
        outputs[i] = operands[0].reshaped(shape_values(infos[i].shape));
        continue;
      }
      SITU_RETURN_IF_ERROR(allocate(node, infos[i], &outputs[i]));
      move(outputs[i].view(), source);
    }
    return outputs;
  }
  if (node.def->placement == Placement::kConcat) {
    SITU_RETURN_IF_ERROR(allocate(node, infos[0], &outputs[0]));
    View slice = outputs[0].view();
    Result<int> axis = normalize_axis(node.attr_int("axis", 0), slice.rank);
    if (!axis.is_ok()) return axis.status();
    for (const Tensor& x : operands) {
      slice.dims[*axis] = x.view().dims[*axis];
      move(slice, x.view());
      slice.data += slice.dims[*axis] * slice.strides[*axis] * dtype_bytes(slice.type);
    }
    return outputs;
  }
  SITU_RETURN_IF_ERROR(compute(node, operands, infos, &outputs));
  return outputs;
}

Result<std::vector<Tensor>> Evaluator::control(const Node& node, const std::vector<Tensor>& operands) {
  const auto run = [&](const Graph& body, std::map<ValueId, Tensor> feeds) -> Result<std::vector<Tensor>> {
    for (const auto& [inner, outer] : body.captures) {
      if (static_cast<size_t>(outer) >= live_.size() || !live_[outer])
        return Status::error(node.label() + ": captured value is not available");
      feeds[inner] = *live_[outer];
    }
    std::vector<const Tensor*> saved;
    saved.swap(live_);
    Result<std::vector<Tensor>> result = graph(body, feeds);
    live_.swap(saved);
    return result;
  };
  if (node.is("Scan")) return scan(node, operands, *this, max_bytes_, run);
  if (!node.is("If")) return Status::error(node.label() + ": only If and Scan are supported among control operators");
  if (operands.empty() || !operands[0].present() || operands[0].count() != 1 || operands[0].type() != DType::kBool)
    return Status::error(node.label() + ": the condition is not one bool");
  const Attribute* branch = node.attr(operands[0].to_i64()[0] ? "then_branch" : "else_branch");
  if (!branch || !branch->graph) return Status::error(node.label() + ": a branch is missing");
  return run(*branch->graph, {});
}

Result<std::vector<Tensor>> Evaluator::graph(const Graph& g, const std::map<ValueId, Tensor>& feeds) {
  std::vector<Tensor> values(g.values.size());
  for (const auto& [id, tensor] : feeds) values[id] = tensor;
  for (size_t v = 0; v < g.values.size(); ++v)
    if (g.values[v].constant.present()) values[v] = g.values[v].constant;
  std::vector<int> last(g.values.size(), -1);
  for (size_t n = 0; n < g.nodes.size(); ++n) {
    for (ValueId v : g.nodes[n].in)
      if (v != kNoValue) last[v] = static_cast<int>(n);
    for (const auto& [key, a] : g.nodes[n].attrs)
      if (a.graph)
        for (const auto& [inner, outer] : a.graph->captures) last[outer] = static_cast<int>(n);
  }
  for (ValueId v : g.outputs) last[v] = static_cast<int>(g.nodes.size());

  for (size_t n = 0; n < g.nodes.size(); ++n) {
    const Node& current = g.nodes[n];
    if (pool_.interrupted()) return Status::error(Code::kInterrupted, "interrupted");
    std::vector<Tensor> operands(current.in.size());
    for (size_t i = 0; i < current.in.size(); ++i) {
      if (current.in[i] == kNoValue) continue;
      operands[i] = values[current.in[i]];
      if (!operands[i].present())
        return Status::error(current.label() + ": operand '" + g.values[current.in[i]].name + "' has no value");
    }
    if (current.def && current.def->placement == Placement::kControl) {
      live_.assign(values.size(), nullptr);
      for (size_t v = 0; v < values.size(); ++v)
        if (values[v].present()) live_[v] = &values[v];
    }
    Result<std::vector<Tensor>> results = node(current, operands);
    if (!results.is_ok()) return results.status();
    for (size_t i = 0; i < current.out.size(); ++i)
      if (current.has_output(i)) values[current.out[i]] = (*results)[i];
    for (ValueId v : current.in)
      if (v != kNoValue && last[v] == static_cast<int>(n) && !g.values[v].constant.present()) values[v] = Tensor();
  }
  std::vector<Tensor> outputs;
  for (ValueId v : g.outputs) {
    if (!values[v].present()) return Status::error("output '" + g.values[v].name + "' was not computed");
    outputs.push_back(values[v]);
  }
  return outputs;
}

}  // namespace situ
