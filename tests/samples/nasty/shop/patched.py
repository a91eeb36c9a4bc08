def send(message):
    return "sent " + message


def notify(message):
    return send(message)
