// The public Tokenizer: texts and conversations as ids, over the tokenizer of a folder.
#include "pipelines/public_tokenizer.h"

#include "base/assign.h"
#include "pipelines/conversation.h"
#include "pipelines/llm.h"
#include "text/language_tokens.h"
#include "text/mark.h"

namespace situ {
namespace {

template <typename T>
Result<T> with_code(Result<T> result, Code code = Code::kInvalidArgument) {
  if (!result.is_ok()) return result.status().or_code(code);
  return result;
}

Status check_no_media(std::span<const Message> messages) {
  for (const Message& m : messages)
    for (const Part& p : m.parts)
      if (p.kind != Part::Kind::kText)
        return Status::error(Code::kInvalidArgument,
                             "a tokenizer takes texts; the " + m.role + " message has a part that Model::read() reads");
  return Status::ok();
}

Result<PromptText> rendered(const Tokenizer::Impl& impl, std::span<const Message> messages,
                            const ChatOptions& options) {
  SITU_RETURN_IF_ERROR(impl.check_template());
  SITU_TAKE(dialog, dialog_of(impl.form(), options));
  return render_conversation(*impl.loaded, messages, options, &dialog);
}

}  // namespace

Status Tokenizer::Impl::check() const {
  return loaded ? Status::ok() : Status::error(Code::kNotFound, missing + "; give token ids instead of text");
}

Status Tokenizer::Impl::check_template() const {
  if (!loaded) return Status::error(Code::kNotFound, missing);
  if (loaded->has_chat_template()) return Status::ok();
  return Status::error(Code::kNotFound, folder + ": the model has no chat template");
}

const ModelForm* Tokenizer::Impl::form() const {
  if (!loaded || !loaded->has_chat_template()) return nullptr;
  std::call_once(form_once_, [&] { form_.emplace(form_of(*loaded)); });
  return &*form_;
}

Result<std::shared_ptr<Tokenizer::Impl>> load_tokenizer(const std::filesystem::path& folder) {
  auto impl = std::make_shared<Tokenizer::Impl>();
  impl->folder = folder.string();
  Result<FolderTokenizer> loaded = FolderTokenizer::load(folder);
  if (!loaded.is_ok() && loaded.status().code() != Code::kNotFound) return loaded.status().or_code(Code::kBadFile);
  if (!loaded.is_ok()) {
    impl->missing = loaded.status().message();
    return impl;
  }
  impl->loaded.emplace(std::move(*loaded));
  if (const std::optional<int64_t> end = impl->loaded->special_token_id("eos_token")) impl->end_ids.push_back(*end);
  return impl;
}

Result<Tokenizer> Tokenizer::load(const std::string& folder) {
  return or_out_of_memory([&]() -> Result<Tokenizer> {
    SITU_TAKE(impl, load_tokenizer(folder));
    if (!impl->loaded) return Status::error(Code::kNotFound, impl->missing);
    return Tokenizer(std::move(impl));
  });
}

bool Tokenizer::is_there() const { return impl_->loaded.has_value(); }
bool Tokenizer::has_chat_template() const { return impl_->loaded && impl_->loaded->has_chat_template(); }
int64_t Tokenizer::size() const { return impl_->loaded ? impl_->loaded->vocab_size() : 0; }
const std::vector<int64_t>& Tokenizer::end_ids() const { return impl_->end_ids; }

Result<std::vector<int64_t>> Tokenizer::encode(std::string_view text, bool add_special, bool parse_special) const {
  SITU_RETURN_IF_ERROR(impl_->check());
  return with_code(parse_special ? impl_->loaded->encode(text, add_special)
                                 : impl_->loaded->encode_plain(text, add_special));
}

Result<std::string> Tokenizer::decode(std::span<const int64_t> ids, bool skip_special) const {
  if (!impl_->loaded) return Status::error(Code::kNotFound, impl_->missing);
  return with_code(impl_->loaded->decode(ids, skip_special));
}

std::optional<int64_t> Tokenizer::id_of(std::string_view token) const {
  return impl_->loaded ? impl_->loaded->token_to_id(token) : std::nullopt;
}
std::optional<std::string> Tokenizer::token_of(int64_t id) const {
  return impl_->loaded ? impl_->loaded->id_to_token(id) : std::nullopt;
}
std::optional<std::string> Tokenizer::bytes_of(int64_t id) const {
  return impl_->loaded ? impl_->loaded->bytes_of(id) : std::nullopt;
}
bool Tokenizer::is_special(int64_t id) const { return impl_->loaded && impl_->loaded->is_special(id); }

Result<std::string> Tokenizer::render(std::span<const Message> messages, const ChatOptions& options) const {
  SITU_TAKE(prompt, rendered(*impl_, messages, options));
  return without_mark(prompt.text, prompt.mark);
}

Result<std::vector<int64_t>> Tokenizer::encode(std::span<const Message> messages, const ChatOptions& options) const {
  SITU_RETURN_IF_ERROR(impl_->check_template());
  SITU_RETURN_IF_ERROR(check_no_media(messages));
  SITU_TAKE(prompt, rendered(*impl_, messages, options));
  return encode_prompt(*impl_->loaded, prompt);
}

Result<Tokenizer::Translation> Tokenizer::encode_translation(const std::string& text,
                                                             const std::string& source_language,
                                                             const std::string& target_language) const {
  if (!impl_->loaded) return Status::error(Code::kNotFound, impl_->missing + ", which has the tokens of languages");
  const auto given = [](const std::string& code) { return code.empty() ? std::nullopt : std::optional(code); };
  const Result<TranslationTokens> tokens =
      translation_tokens(*impl_->loaded, given(source_language), given(target_language));
  if (!tokens.is_ok()) return tokens.status().or_code(Code::kInvalidArgument).with_context(impl_->folder);
  Result<std::vector<int64_t>> ids = impl_->loaded->encode(text, false);
  if (!ids.is_ok()) return ids.status().or_code(Code::kInvalidArgument);
  ids->insert(ids->begin(), tokens->prefix.begin(), tokens->prefix.end());
  ids->insert(ids->end(), tokens->suffix.begin(), tokens->suffix.end());
  return Translation{std::move(*ids), tokens->forced_bos};
}

}  // namespace situ
