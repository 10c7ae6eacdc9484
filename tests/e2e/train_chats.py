"""Chats of different lengths, for tests that train."""


def chat(i, words=None):
    words = words or 3 + i * 7 % 23
    return {"messages": [{"role": "user", "content": f"What is number {i}?"},
                         {"role": "assistant", "content": " ".join(f"{i * k % 97} packages" for k in range(1, words // 2 + 2))}]}
