#include "python/options.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <string_view>
#include <type_traits>

#include "python/model_handle.h"

namespace nb = nanobind;

namespace situ::python {
namespace {

template <auto kField, typename Options>
void set(Options& options, nb::handle value) {
  using Type = std::remove_reference_t<decltype(options.*kField)>;
  options.*kField = nb::cast<Type>(value);
}

// An enum by its name; SituError: it has no such value.
template <auto kField, auto kNamed, typename Options>
void set_named(Options& options, nb::handle value) {
  options.*kField = value_or_raise(kNamed(nb::cast<std::string>(value)));
}

// The name of a file, in any bytes.
template <auto kField>
void set_path(LoadOptions& options, nb::handle value) {
  const nb::bytes name = nb::cast<nb::bytes>(value);
  options.*kField = std::string(static_cast<const char*>(name.data()), name.size());
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

template <typename Options>
struct Option {
  std::string_view name;
  void (*set)(Options& options, nb::handle value);  // throws nb::cast_error
};

constexpr Option<LoadOptions> kLoadOptions[] = {
    {"threads", set<&LoadOptions::threads, LoadOptions>},
    {"naive", set<&LoadOptions::naive, LoadOptions>},
    {"context_length", set<&LoadOptions::context_length, LoadOptions>},
    {"memory", set<&LoadOptions::memory, LoadOptions>},
    {"slots", set<&LoadOptions::slots, LoadOptions>},
    {"chunk", set<&LoadOptions::chunk, LoadOptions>},
    {"window", set<&LoadOptions::window, LoadOptions>},
    {"sink", set<&LoadOptions::sink, LoadOptions>},
    {"kv_type", set_named<&LoadOptions::kv_type, kv_type_of, LoadOptions>},
    {"draft", set_path<&LoadOptions::draft>},
    {"variants", set<&LoadOptions::variants, LoadOptions>},
    {"pack_cache", set<&LoadOptions::pack_cache, LoadOptions>},
};

constexpr Option<GenerateOptions> kOptions[] = {
    {"max_new_tokens", set<&GenerateOptions::max_new_tokens, GenerateOptions>},
    {"min_new_tokens", set<&GenerateOptions::min_new_tokens, GenerateOptions>},
    {"ignore_eos", set<&GenerateOptions::ignore_eos, GenerateOptions>},
    {"end_of_turn", set<&GenerateOptions::end_of_turn, GenerateOptions>},
    {"sample", set<&GenerateOptions::sample, GenerateOptions>},
    {"sample_as_files", set<&GenerateOptions::sample_as_files, GenerateOptions>},
    {"temperature", set<&GenerateOptions::temperature, GenerateOptions>},
    {"top_k", set<&GenerateOptions::top_k, GenerateOptions>},
    {"top_p", set<&GenerateOptions::top_p, GenerateOptions>},
    {"min_p", set<&GenerateOptions::min_p, GenerateOptions>},
    {"typical_p", set<&GenerateOptions::typical_p, GenerateOptions>},
    {"seed", set<&GenerateOptions::seed, GenerateOptions>},
    {"repetition_penalty", set<&GenerateOptions::repetition_penalty, GenerateOptions>},
    {"no_repeat_ngram", set<&GenerateOptions::no_repeat_ngram, GenerateOptions>},
    {"encoder_repetition_penalty", set<&GenerateOptions::encoder_repetition_penalty, GenerateOptions>},
    {"encoder_no_repeat_ngram", set<&GenerateOptions::encoder_no_repeat_ngram, GenerateOptions>},
    {"forced_bos_id", set<&GenerateOptions::forced_bos_id, GenerateOptions>},
    {"forced_eos_id", set<&GenerateOptions::forced_eos_id, GenerateOptions>},
    {"suppress_ids", set<&GenerateOptions::suppress_ids, GenerateOptions>},
    {"begin_suppress_ids", set<&GenerateOptions::begin_suppress_ids, GenerateOptions>},
    {"presence_penalty", set<&GenerateOptions::presence_penalty, GenerateOptions>},
    {"frequency_penalty", set<&GenerateOptions::frequency_penalty, GenerateOptions>},
    {"logit_bias", set_logit_bias},
    {"bad_words", set<&GenerateOptions::bad_words, GenerateOptions>},
    {"bad_words_ids", set<&GenerateOptions::bad_words_ids, GenerateOptions>},
    {"json_schema", set<&GenerateOptions::json_schema, GenerateOptions>},
    {"regex", set<&GenerateOptions::regex, GenerateOptions>},
    {"grammar", set<&GenerateOptions::grammar, GenerateOptions>},
    {"stop", set<&GenerateOptions::stop, GenerateOptions>},
    {"stop_ids", set<&GenerateOptions::stop_ids, GenerateOptions>},
    {"beams", set<&GenerateOptions::beams, GenerateOptions>},
    {"beam_groups", set<&GenerateOptions::beam_groups, GenerateOptions>},
    {"diversity_penalty", set<&GenerateOptions::diversity_penalty, GenerateOptions>},
    {"length_penalty", set<&GenerateOptions::length_penalty, GenerateOptions>},
    {"early_stopping", set_named<&GenerateOptions::early_stopping, early_stopping_of, GenerateOptions>},
    {"num_return", set<&GenerateOptions::num_return, GenerateOptions>},
    {"prompt_lookup", set<&GenerateOptions::prompt_lookup, GenerateOptions>},
    {"draft_tokens", set<&GenerateOptions::draft_tokens, GenerateOptions>},
    {"report_perplexity", set<&GenerateOptions::report_perplexity, GenerateOptions>},
    {"logprobs", set<&GenerateOptions::logprobs, GenerateOptions>},
    {"prompt_logprobs", set<&GenerateOptions::prompt_logprobs, GenerateOptions>},
    {"echo", set<&GenerateOptions::echo, GenerateOptions>},
    {"choices", set<&GenerateOptions::choices, GenerateOptions>},
    {"prefix_cache", set_prefix_cache},
};

[[noreturn]] void raise_type_error(const std::string& message) { throw nb::type_error(message.c_str()); }

// `of`: what takes them.
template <typename Options, size_t count>
Options options_by(const Option<Options> (&known)[count], const nb::dict& arguments, const char* of) {
  Options options;
  for (const auto& [key, value] : arguments) {
    const std::string name = nb::cast<std::string>(key);
    const auto* const option =
        std::find_if(std::begin(known), std::end(known), [&](const Option<Options>& o) { return o.name == name; });
    if (option == std::end(known)) raise_type_error("there is no option '" + name + "' of " + of);
    if (value.is_none()) continue;
    try {
      option->set(options, value);
    } catch (const nb::cast_error&) {
      raise_type_error("option " + name + " cannot be " + nb::cast<std::string>(nb::repr(value)));
    }
  }
  return options;
}

template <typename Options, size_t count>
nb::list names_of(const Option<Options> (&known)[count]) {
  nb::list names;
  for (const Option<Options>& o : known) names.append(nb::str(o.name.data(), o.name.size()));
  return names;
}

}  // namespace

GenerateOptions options_of(const nb::dict& arguments) { return options_by(kOptions, arguments, "generate"); }
LoadOptions load_options_of(const nb::dict& arguments) { return options_by(kLoadOptions, arguments, "load"); }
nb::list option_names() { return names_of(kOptions); }
nb::list load_option_names() { return names_of(kLoadOptions); }

}  // namespace situ::python
