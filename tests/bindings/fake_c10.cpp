/* fake_c10.cpp: stands in for PyTorch's libc10.so. */
#include "fake_c10.h"

namespace c10
{

Error::Error(SourceLocation where_, std::string text)
    : where(where_.function), text_(std::move(text)), whole_(text_ + "\nException raised from fake")
{
}

const char *Error::what() const noexcept
{
    return whole_.c_str();
}

} // namespace c10

void fake_c10_throw()
{
    throw c10::OutOfMemoryError({"fake_c10_throw", "fake", 1}, "thrown by the library");
}
