"""Finished HTML as an e-book wants it: XML, and without forms, since nothing there answers."""
import html
import html.parser


def xhtml(text):
    return "".join(Writer(text).out)


class Writer(html.parser.HTMLParser):
    VOID = {"br", "hr", "img", "input", "wbr"}
    CASE = {"viewbox": "viewBox"}  # the parser makes names lower case, and XML tells them apart

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.out, self.forms = [], 0
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.forms += tag == "form"
        if not self.forms:
            names = "".join(f' {self.CASE.get(name, name)}="{html.escape(value or name, quote=True)}"' for name, value in attributes)
            self.out.append(f"<{tag}{names}" + ("/>" if tag in self.VOID else ">"))

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in self.VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        if not self.forms and tag not in self.VOID:
            self.out.append(f"</{tag}>")
        self.forms -= tag == "form"

    def handle_data(self, data):
        if not self.forms:
            self.out.append(html.escape(data, quote=False))
