/*
 * out_of_memory.h: the exception that PyTorch turns into torch.cuda.OutOfMemoryError.
 *
 * PyTorch's pluggable allocator uses what the allocation function returned without looking at it, so a
 * refusal must leave by an exception, and it must be c10::OutOfMemoryError: Python code and
 * libraries catch that type and free something.
 */
#ifndef ULLAGE_TORCH_OUT_OF_MEMORY_H
#define ULLAGE_TORCH_OUT_OF_MEMORY_H

#include <new>
#include <string>

namespace ullage
{

/* What is thrown where there is no PyTorch in the process, or one that we do not know. */
class OutOfMemory : public std::bad_alloc
{
  public:
    explicit OutOfMemory(const std::string &text) : text_(text)
    {
    }
    const char *what() const noexcept override
    {
        return text_.c_str();
    }

  private:
    std::string text_;
};

/* Throws c10::OutOfMemoryError if a loaded PyTorch has it, else OutOfMemory. */
[[noreturn]] void throw_out_of_memory(const std::string &text);

/* Would throw_out_of_memory throw PyTorch's own type? */
bool knows_c10();

/*
 * c10.cpp, which is compiled once for each of the two ABIs of std::string that PyTorch was built with
 * (pip's before 2.6 use the old one). knows: does this process have PyTorch of this ABI? Throws only
 * if it does, else returns.
 */
namespace cxx11
{
bool knows();
void throw_c10(const char *text);
} // namespace cxx11
namespace cxx98
{
bool knows();
void throw_c10(const char *text);
} // namespace cxx98

} // namespace ullage

#endif
