// What is settled of options before a model is loaded, and how conversations draw.
#include <algorithm>
#include <limits>

#include "pipelines/llm.h"
#include "pipelines/sampling.h"
#include "situ/tools.h"
#include "text/grammar.h"

namespace situ {
namespace {

// The model's part of the options is left out: texts that its tokenizer reads, and beams that its files may ask for.
Status check_numbers(GenerateOptions options) {
  options.bad_words.clear();
  options.stop.clear();
  options.echo = false;
  if (!options.beams) {
    options.length_penalty.reset();
    options.early_stopping.reset();
    options.diversity_penalty.reset();
    options.beam_groups = options.num_return = 1;
  }
  return resolve_options(options, ModelFolder{}, nullptr, std::numeric_limits<int64_t>::max()).status();
}

Status check_grammar(const char* name, GrammarKind kind, const std::optional<std::string>& source) {
  if (!source) return Status::ok();
  return Grammar::check(kind, *source).with_context(name).or_option(name);
}

// Whether the folder's files say how a conversation is drawn. `greedy`: by saying that nothing is.
bool files_speak(const GenerationConfig& files, bool* greedy) {
  const ConfigField* const draws = files.find("do_sample");
  *greedy = draws && draws->text == "false";
  if (draws && draws->text == "true") return true;
  constexpr const char* kFields[] = {"do_sample", "temperature", "top_k", "top_p", "min_p", "typical_p"};
  return std::any_of(std::begin(kFields), std::end(kFields), [&](const char* name) {
    const ConfigField* const field = files.find(name);
    return field && field->text != "null" && field->where.ends_with(std::string("generation_config.json: ") + name);
  });
}

}  // namespace

Status check_options(const GenerateOptions& options) {
  SITU_RETURN_IF_ERROR(check_numbers(options));
  SITU_RETURN_IF_ERROR(check_grammar("json_schema", GrammarKind::kJsonSchema, options.json_schema));
  SITU_RETURN_IF_ERROR(check_grammar("regex", GrammarKind::kRegex, options.regex));
  return check_grammar("grammar", GrammarKind::kLark, options.grammar);
}

void draw_as_chat(const Model& model, GenerateOptions* options) {
  GenerateOptions& o = *options;
  if (o.beams.value_or(1) > 1) return;
  const bool said = o.sample || o.temperature || o.top_k || o.top_p || o.min_p || o.typical_p;
  bool greedy = false;
  if (!files_speak(impl_of(model).folder.generation, &greedy)) {
    if (!o.temperature) o.temperature = 0.7;
    if (!o.top_p) o.top_p = 0.95;
    if (!o.top_k) o.top_k = 50;
  } else if (greedy && !said) {
    o.sample_as_files = false;
    return;
  }
  o.sample = true;
}

}  // namespace situ
