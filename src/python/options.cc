#include "python/options.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <string_view>
#include <type_traits>

namespace nb = nanobind;

namespace situ::python {
namespace {

template <auto kField>
void set(GenerateOptions& options, nb::handle value) {
  using Type = std::remove_reference_t<decltype(options.*kField)>;
  options.*kField = nb::cast<Type>(value);
}

void set_logit_bias(GenerateOptions& options, nb::handle value) {
  const nb::object biases = nb::borrow(reinterpret_cast<PyObject*>(&PyDict_Type))(value);  // dict(value): any mapping
  options.logit_bias = nb::cast<decltype(options.logit_bias)>(nb::cast<nb::dict>(biases).items());
}

void set_prefix_cache(GenerateOptions& options, nb::handle value) {
  const std::string name = nb::cast<std::string>(value);
  constexpr const char* kNames[] = {"off", "prompts", "all"};
  const auto* found = std::find(std::begin(kNames), std::end(kNames), name);
  if (found == std::end(kNames)) throw nb::cast_error();
  options.prefix_cache = static_cast<PrefixReuse>(found - std::begin(kNames));
}

struct Option {
  std::string_view name;
  void (*set)(GenerateOptions& options, nb::handle value);  // throws nb::cast_error
};

constexpr Option kOptions[] = {
    {"max_new_tokens", set<&GenerateOptions::max_new_tokens>},
    {"min_new_tokens", set<&GenerateOptions::min_new_tokens>},
    {"ignore_eos", set<&GenerateOptions::ignore_eos>},
    {"end_of_turn", set<&GenerateOptions::end_of_turn>},
    {"sample", set<&GenerateOptions::sample>},
    {"sample_as_files", set<&GenerateOptions::sample_as_files>},
    {"temperature", set<&GenerateOptions::temperature>},
    {"top_k", set<&GenerateOptions::top_k>},
    {"top_p", set<&GenerateOptions::top_p>},
    {"min_p", set<&GenerateOptions::min_p>},
    {"typical_p", set<&GenerateOptions::typical_p>},
    {"seed", set<&GenerateOptions::seed>},
    {"repetition_penalty", set<&GenerateOptions::repetition_penalty>},
    {"no_repeat_ngram", set<&GenerateOptions::no_repeat_ngram>},
    {"encoder_repetition_penalty", set<&GenerateOptions::encoder_repetition_penalty>},
    {"encoder_no_repeat_ngram", set<&GenerateOptions::encoder_no_repeat_ngram>},
    {"forced_bos_id", set<&GenerateOptions::forced_bos_id>},
    {"forced_eos_id", set<&GenerateOptions::forced_eos_id>},
    {"suppress_ids", set<&GenerateOptions::suppress_ids>},
    {"begin_suppress_ids", set<&GenerateOptions::begin_suppress_ids>},
    {"presence_penalty", set<&GenerateOptions::presence_penalty>},
    {"frequency_penalty", set<&GenerateOptions::frequency_penalty>},
    {"logit_bias", set_logit_bias},
    {"bad_words", set<&GenerateOptions::bad_words>},
    {"bad_words_ids", set<&GenerateOptions::bad_words_ids>},
    {"json_schema", set<&GenerateOptions::json_schema>},
    {"regex", set<&GenerateOptions::regex>},
    {"grammar", set<&GenerateOptions::grammar>},
    {"stop", set<&GenerateOptions::stop>},
    {"stop_ids", set<&GenerateOptions::stop_ids>},
    {"beams", set<&GenerateOptions::beams>},
    {"beam_groups", set<&GenerateOptions::beam_groups>},
    {"diversity_penalty", set<&GenerateOptions::diversity_penalty>},
    {"length_penalty", set<&GenerateOptions::length_penalty>},
    {"early_stopping", set<&GenerateOptions::early_stopping>},
    {"num_return", set<&GenerateOptions::num_return>},
    {"prompt_lookup", set<&GenerateOptions::prompt_lookup>},
    {"draft_tokens", set<&GenerateOptions::draft_tokens>},
    {"report_perplexity", set<&GenerateOptions::report_perplexity>},
    {"logprobs", set<&GenerateOptions::logprobs>},
    {"prompt_logprobs", set<&GenerateOptions::prompt_logprobs>},
    {"echo", set<&GenerateOptions::echo>},
    {"choices", set<&GenerateOptions::choices>},
    {"prefix_cache", set_prefix_cache},
};

[[noreturn]] void raise_type_error(const std::string& message) { throw nb::type_error(message.c_str()); }

}  // namespace

GenerateOptions options_of(const nb::dict& arguments) {
  GenerateOptions options;
  for (const auto& [key, value] : arguments) {
    const std::string name = nb::cast<std::string>(key);
    const Option* option =
        std::find_if(std::begin(kOptions), std::end(kOptions), [&](const Option& o) { return o.name == name; });
    if (option == std::end(kOptions)) raise_type_error("there is no option '" + name + "' of generate");
    try {
      option->set(options, value);
    } catch (const nb::cast_error&) {
      raise_type_error("option " + name + " cannot be " + nb::cast<std::string>(nb::repr(value)));
    }
  }
  return options;
}

nb::list option_names() {
  nb::list names;
  for (const Option& o : kOptions) names.append(nb::str(o.name.data(), o.name.size()));
  return names;
}

}  // namespace situ::python
