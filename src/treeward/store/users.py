"""Who events are of."""

from collections.abc import Sequence

from treeward.core.errors import InvalidArgument

User = int | str


def spelled(user: User) -> bytes:
    """Return a user in bytes: no two are spelled the same, not even 7 and "7".

    Examples
    --------
    >>> spelled(7), spelled("7")
    (b'i7', b's7')
    """
    return b"s" + user.encode(errors="surrogatepass") if isinstance(user, str) else b"i%d" % user


def user_of(name: bytes) -> User:
    """Return the user who is spelled so."""
    return int(name[1:]) if name[:1] == b"i" else bytes(name[1:]).decode(errors="surrogatepass")


def check_names(owner: str, users: Sequence[User]) -> None:
    """Refuse names that cannot be written in UTF-8."""
    for user in users:
        if isinstance(user, str):
            try:
                user.encode()
            except UnicodeEncodeError as error:
                raise InvalidArgument(owner, "users", "strings that can be written in UTF-8", user) from error


def spelled_names(owner: str, users: Sequence[User], longest: int) -> list[bytes]:
    """Return users in bytes, and refuse what is none, or longer than so many bytes."""
    made = []
    for user in users:
        if not isinstance(user, str | int):
            raise InvalidArgument(owner, "users", "strings or integers", user)
        name = spelled(user)
        if len(name) > longest:
            raise InvalidArgument(owner, "users", f"names of at most {longest} bytes", user)
        made.append(name)
    return made
