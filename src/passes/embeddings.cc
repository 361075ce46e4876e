#include "passes/embeddings.h"

#include <algorithm>
#include <map>

#include "passes/module.h"
#include "passes/specialise.h"

namespace situ {
namespace {

bool fits(const Value& made, const Value& taken) {
  if (made.info.type != taken.info.type || made.info.shape.size() != 3) return false;
  const Dim &a = made.info.shape[2], &b = taken.info.shape[2];
  return !a.is_const() || !b.is_const() || a == b;
}

// The ids of the lookup as an input of the decoder: its own, where it has one of that name.
ValueId ids_of(Graph& decoder, const Graph& lookup, ValueId embeddings) {
  const Value& ids = lookup.values[lookup.inputs[0]];
  for (const ValueId v : decoder.inputs)
    if (decoder.values[v].name == ids.name) return v;
  const ValueId v = decoder.add_value(ids.name, ids.info.type);
  // Tokens are those of the embeddings.
  decoder.values[v].info.ranked = true;
  decoder.values[v].info.shape = {decoder.values[embeddings].info.shape[0], decoder.values[embeddings].info.shape[1]};
  decoder.inputs.insert(decoder.inputs.begin(), v);
  return v;
}

}  // namespace

ValueId embeddings_input(const Graph& decoder) {
  ValueId found = kNoValue;
  for (const ValueId v : decoder.inputs) {
    const Value& value = decoder.values[v];
    if (!dtype_is_float(value.info.type) || value.info.shape.size() != 3 || !state_suffix(value.name).empty()) continue;
    if (found != kNoValue) return kNoValue;
    found = v;
  }
  return found;
}

Status join_embeddings(Graph& decoder, const std::string& decoder_name, const Graph& lookup,
                       const std::string& lookup_name) {
  const ValueId embeddings = embeddings_input(decoder);
  if (embeddings == kNoValue)
    return Status::error(decoder_name + ": no input, or more than one, takes the embeddings of " + lookup_name +
                         " (floats of shape [batch, tokens, width])");
  const bool takes_ids = lookup.inputs.size() == 1 && !dtype_is_float(lookup.values[lookup.inputs[0]].info.type) &&
                         lookup.values[lookup.inputs[0]].info.shape.size() == 2;
  if (!takes_ids) {
    std::string inputs;
    for (const ValueId v : lookup.inputs) inputs += (inputs.empty() ? "" : ", ") + lookup.describe(v);
    return Status::error(lookup_name + ": its one input should be token ids [batch, tokens]; it has " + inputs);
  }
  std::vector<ValueId> made;
  for (const ValueId v : lookup.outputs)
    if (fits(lookup.values[v], decoder.values[embeddings])) made.push_back(v);
  if (made.size() != 1 || lookup.values[made[0]].producer < 0)
    return Status::error(lookup_name + ": " + std::to_string(made.size()) + " of its outputs could be input " +
                         decoder.describe(embeddings) + " of " + decoder_name);
  Graph part = lookup;
  slice(part, made);
  const ValueId ids = ids_of(decoder, lookup, embeddings);
  const std::string name = decoder.values[embeddings].name;
  const ValueId joined = link(decoder, part, {{lookup.inputs[0], ids}}, "embed/")[0];
  decoder.replace_uses(embeddings, joined);
  std::erase(decoder.inputs, embeddings);
  decoder.values[embeddings].name += "/input";
  decoder.values[joined].name = name;
  SITU_RETURN_IF_ERROR(decoder.sort());
  decoder.rebuild_links();
  return Status::ok();
}

}  // namespace situ
