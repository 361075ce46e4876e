#include "pipelines/read_prompt.h"

#include <algorithm>

#include "base/assign.h"
#include "base/context_words.h"
#include "pipelines/conversation.h"
#include "pipelines/media.h"
#include "text/mark.h"

namespace situ {
namespace {

using Kind = Part::Kind;

// What `encode` gives of so many tokens at most (0: of any number). A long text that cannot fit the context is not
// tokenised, or not to its end.
template <typename Encode>
Result<std::vector<int64_t>> bounded_tokens(const Model::Impl& m, const PromptText& words, PromptLength length,
                                            const Encode& encode) {
  constexpr size_t kLong = 64 << 10;
  const bool any = length == PromptLength::kAny || m.has_encoder() || words.text.size() <= kLong;
  const int64_t most = any ? 0 : m.context_length;
  const auto too_long = [&] {
    return Status::error(Code::kContextExceeded, m.file + ": " + context_words(most, most + 1, true));
  };
  if (most > 0 && m.text()->least_tokens(without_mark(words.text, words.mark)) > most) return too_long();
  Result<std::vector<int64_t>> ids = encode(most);
  if (!ids.is_ok()) return ids.status().or_code(Code::kInvalidArgument);
  if (most > 0 && std::ssize(*ids) > most) return too_long();
  return ids;
}

class PromptReader {
 public:
  PromptReader(const Model::Impl& model, const Prompt& prompt, Dialog* dialog, PromptLength length)
      : m_(model), prompt_(prompt), dialog_(dialog), length_(length) {}

  Result<Prompt> read() {
    SITU_RETURN_IF_ERROR(sort_parts());
    SITU_RETURN_IF_ERROR(read_media());
    Prompt made;
    made.decoder_ids = prompt_.decoder_ids;
    made.is_conversation = !prompt_.messages.empty();
    Result<std::vector<int64_t>> ids = ids_;
    if (!prompt_.messages.empty())
      ids = conversation();
    else if (!texts_.empty() || (ids_.empty() && has_places()))
      ids = text();
    if (!ids.is_ok()) return ids.status();
    if (!ids->empty()) made.parts.push_back(Part::of_ids(std::move(*ids)));
    made.parts.insert(made.parts.end(), arrays_.begin(), arrays_.end());
    return made_with_media(std::move(made));
  }

  Result<std::string> text_of_conversation() {
    SITU_RETURN_IF_ERROR(sort_parts());
    SITU_RETURN_IF_ERROR(read_media());
    SITU_TAKE(words, rendered());
    return without_mark(words.text, words.mark);
  }

 private:
  Status sort_parts() {
    const auto wrong = [](const char* why) { return Status::error(Code::kInvalidArgument, why); };
    bool any_ids = false;
    for (const Part& p : prompt_.parts) {
      if (p.kind == Kind::kArray) {
        arrays_.push_back(p);
        continue;
      }
      if (!prompt_.messages.empty()) return wrong("a prompt is a conversation or parts, not both");
      if (p.kind == Kind::kIds) {
        ids_.insert(ids_.end(), p.ids.begin(), p.ids.end());
        any_ids = true;
      }
      if (p.kind == Kind::kText) texts_.push_back(&p);
      add_medium(p);
    }
    if (any_ids && !texts_.empty()) return wrong("a prompt is text or token ids, not both");
    for (const Message& message : prompt_.messages)
      for (const Part& p : message.parts) add_medium(p);
    return Status::ok();
  }

  void add_medium(const Part& p) {
    if (p.kind == Kind::kImage) images_.push_back(&p);
    if (p.kind == Kind::kAudio) sounds_.push_back(&p);
  }

  Status read_media() {
    if (!images_.empty()) {
      SITU_RETURN_IF_ERROR(assign(&read_images_, read_images(m_, images_, prompt_)));
    }
    if (sounds_.empty()) return Status::ok();
    SITU_RETURN_IF_ERROR(assign(&read_sounds_, read_sounds(m_, sounds_)));
    return Status::ok();
  }

  // Whether images or sounds are part of a text.
  bool has_places() const {
    return read_sounds_ || (read_images_ && !read_images_->processor.prompt().placeholder.empty());
  }

  Prompt made_with_media(Prompt made) const {
    const auto add = [&](const std::vector<Part>& arrays, const std::vector<MediaFacts>& facts) {
      made.parts.insert(made.parts.end(), arrays.begin(), arrays.end());
      made.media.insert(made.media.end(), facts.begin(), facts.end());
    };
    if (read_images_) add(read_images_->arrays, read_images_->facts);
    if (read_sounds_) add(read_sounds_->arrays, read_sounds_->facts);
    return made;
  }

  Status need_tokenizer() const { return m_.texts->check(); }

  bool text_has(const std::string& placeholder) const {
    return std::any_of(texts_.begin(), texts_.end(),
                       [&](const Part* p) { return p->text.find(placeholder) != std::string::npos; });
  }

  // Texts with images and sounds where placeholders have them, else where their parts stand.
  Result<std::vector<int64_t>> text() const {
    SITU_RETURN_IF_ERROR(need_tokenizer());
    std::string image, sound;  // inserted
    if (read_images_) {
      const PromptRules& rules = read_images_->processor.prompt();
      if (!rules.placeholder.empty() && !rules.images_first && !text_has(rules.placeholder)) image = rules.inserted;
    }
    if (read_sounds_ && !text_has(read_sounds_->family->placeholder)) sound = read_sounds_->family->inserted;
    PromptText words;
    words.templated = false;
    for (const Part& p : prompt_.parts)
      words.text += p.kind == Kind::kText    ? p.text
                    : p.kind == Kind::kImage ? image
                    : p.kind == Kind::kAudio ? sound
                                             : std::string();
    if (!prompt_.parse_special) {
      if (has_places())
        return Status::error(Code::kInvalidArgument,
                             "a text with images or sounds has special tokens: parse_special is true");
      return tokens_of(words, [&](int64_t most) { return m_.text()->encode_plain(words.text, true, most); });
    }
    return encode(std::move(words));
  }

  Result<std::vector<int64_t>> conversation() const {
    Result<PromptText> words = rendered();
    return words.is_ok() ? encode(std::move(*words)) : words.status();
  }

  Result<PromptText> rendered() const {
    SITU_RETURN_IF_ERROR(m_.texts->check_template());
    Result<PromptText> words = render_conversation(*m_.text(), prompt_.messages, prompt_.chat, dialog_);
    if (words.is_ok() && dialog_ && dialog_->form)
      dialog_->in_reasoning = dialog_->form->form.reasoning.open_in(words->text);
    if (words.is_ok() && !words->sound.empty()) {
      const std::string inserted = read_sounds_->family->inserted;
      std::string& t = words->text;
      for (size_t at = 0; (at = t.find(words->sound, at)) != std::string::npos; at += inserted.size())
        t.replace(at, words->sound.size(), inserted);
    }
    return words;
  }

  // With the expansions of sounds and images where their placeholders stand.
  Result<std::vector<int64_t>> encode(PromptText words) const {
    if (read_sounds_) {
      SITU_RETURN_IF_ERROR(assign(&words.text, read_sounds_->expand(words.text)));
    }
    const auto encoded = [&] {
      return tokens_of(words, [&](int64_t most) { return encode_prompt(*m_.text(), words, most); });
    };
    if (!read_images_ || read_images_->processor.prompt().placeholder.empty()) return encoded();
    std::string begin;
    const std::map<std::string, std::string>& special = m_.text()->config().special_tokens;
    if (const auto bos = special.find("bos_token");
        read_images_->processor.prompt().images_first && bos != special.end())
      begin = bos->second;
    SITU_RETURN_IF_ERROR(
        assign(&words.text, read_images_->processor.expand(words.text, read_images_->processed.images, begin)));
    words.templated = words.templated || !begin.empty();  // images that come first write the special tokens themselves
    return encoded();
  }

  template <typename Encode>
  Result<std::vector<int64_t>> tokens_of(const PromptText& words, const Encode& encode) const {
    return bounded_tokens(m_, words, length_, encode);
  }

  const Model::Impl& m_;
  const Prompt& prompt_;
  Dialog* const dialog_;
  const PromptLength length_;
  std::vector<int64_t> ids_;
  std::vector<const Part*> texts_, images_, sounds_;
  std::vector<Part> arrays_;
  std::shared_ptr<ReadImages> read_images_;
  std::optional<ReadSounds> read_sounds_;
};

}  // namespace

Result<Prompt> read_prompt(const Model::Impl& model, Prompt prompt, Dialog* dialog, PromptLength length) {
  const auto is_read = [](const Part& p) { return p.kind == Kind::kIds || p.kind == Kind::kArray; };
  const auto ids =
      std::count_if(prompt.parts.begin(), prompt.parts.end(), [](const Part& p) { return p.kind == Kind::kIds; });
  if (prompt.messages.empty() && ids <= 1 && std::all_of(prompt.parts.begin(), prompt.parts.end(), is_read))
    return prompt;
  return or_out_of_memory([&]() -> Result<Prompt> {
    if (dialog || prompt.messages.empty()) return PromptReader(model, prompt, dialog, length).read();
    SITU_TAKE(own, dialog_of(model.texts->form(), prompt.chat));
    SITU_TAKE(made, PromptReader(model, prompt, &own, length).read());
    if (own.reads()) made.dialog = std::make_shared<const Dialog>(std::move(own));
    return made;
  });
}

Result<std::vector<int64_t>> read_text(const Model::Impl& model, std::string_view text, bool add_special) {
  return or_out_of_memory([&]() -> Result<std::vector<int64_t>> {
    SITU_RETURN_IF_ERROR(model.texts->check());
    PromptText words;
    words.text = text;
    words.templated = !add_special;
    return bounded_tokens(model, words, PromptLength::kContext,
                          [&](int64_t most) { return encode_prompt(*model.text(), words, most); });
  });
}

Result<std::string> text_of_conversation(const Model::Impl& model, const Prompt& prompt, Dialog* dialog) {
  return or_out_of_memory(
      [&] { return PromptReader(model, prompt, dialog, PromptLength::kAny).text_of_conversation(); });
}

}  // namespace situ
